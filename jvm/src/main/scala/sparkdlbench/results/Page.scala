package sparkdlbench.results

import java.nio.charset.StandardCharsets.UTF_8

/** The page of one run: a template with the run's JSON in it. */
object Page {
  private val Marker = "/*RUN_JSON*/null"

  def render(run: Map[String, Any], summary: Map[String, Any]): String = {
    val stream = getClass.getResourceAsStream("/sparkdlbench/page.html")
    require(stream != null, "the jar lacks sparkdlbench/page.html")
    val template =
      try new String(stream.readAllBytes(), UTF_8)
      finally stream.close()
    // "</" would end the script element and "<!--" change how the rest of it is read, whatever string they stand in.
    val json =
      Json.line(Map("run" -> run, "summary" -> summary, "history" -> summary("history"))).replace("<", "\\u003c")
    require(template.contains(Marker), s"page.html lacks the marker $Marker")
    template.replace(Marker, json)
  }
}
