package sparkdlbench.results

import sparkdlbench.common.Json

import java.nio.charset.StandardCharsets.UTF_8

/** The page of one run: a template with the run's JSON in it, and the words for what algorithms count. */
object Page {
  private val Marker = "/*RUN_JSON*/null"

  def render(run: Map[String, Any], summary: Map[String, Any]): String = {
    val template = resource("page.html")
    val content = Json.fields(
      "run" -> run,
      "summary" -> summary,
      "history" -> summary("history"),
      "counted" -> Json.read(resource("counted.json"))
    )
    // "</" would end the script element and "<!--" change how the rest of it is read, whatever string they stand in.
    val json = Json.line(content).replace("<", "\\u003c")
    require(template.contains(Marker), s"page.html lacks the marker $Marker")
    template.replace(Marker, json)
  }

  private def resource(name: String): String = {
    val stream = getClass.getResourceAsStream(s"/sparkdlbench/$name")
    require(stream != null, s"the jar lacks sparkdlbench/$name")
    try new String(stream.readAllBytes(), UTF_8)
    finally stream.close()
  }
}
