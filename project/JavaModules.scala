/** The `--add-opens` that Spark needs on JDK 17 and later, as its own launcher passes them. */
object JavaModules {
  private val packages = Seq(
    "java.lang",
    "java.lang.invoke",
    "java.lang.reflect",
    "java.io",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "java.util.concurrent.atomic",
    "sun.nio.ch",
    "sun.nio.cs",
    "sun.security.action",
    "sun.util.calendar"
  )
  val opens: Seq[String] =
    packages.map(name => s"--add-opens=java.base/$name=ALL-UNNAMED") ++
      Seq("-Djdk.reflect.useDirectMethodHandle=false", "-Dio.netty.tryReflectionSetAccessible=true")
}
