package sparkdlbench.config

import org.apache.spark.SparkConf
import org.apache.spark.sparkdlbench.SparkFacts
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Json

import java.nio.file.{Files, Paths}
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/** The same cases as tests/test_redaction.py. */
class RedactionSuite extends AnyFunSuite {
  private val cases = Json.read(Files.readString(Paths.get("../tests/redaction_cases.json")))
  private def texts(name: String) = cases.path(name).elements.asScala.map(_.asText).toList

  test("names whose values are hidden, and names whose values are shown") {
    val (hidden, shown) = (texts("hidden_names"), texts("shown_names"))
    assert(hidden.size > 50 && shown.size > 20)
    assert(hidden.filterNot(Redaction.isSecret) == Nil)
    assert(shown.filter(Redaction.isSecret) == Nil)
  }

  test("no key of a run is hidden by its name: none holds a secret") {
    assert(RunKeys.all.map(_.name).filter(Redaction.isSecret) == Nil)
  }

  test("secrets within texts, and texts that stay as they are") {
    cases.path("texts").elements.asScala.foreach { pair =>
      assert(Redaction.text(pair.path(0).asText) == pair.path(1).asText)
    }
    texts("shown_texts").foreach(text => assert(Redaction.text(text) == text))
  }

  test("a session's properties, and everything in what becomes JSON") {
    val conf = new SparkConf(false)
    texts("hidden_names").foreach(name => conf.set(s"spark.hadoop.$name", "s3cr3t"))
    conf.set("spark.x.options", "AccountKey=s3cr3t -Xmx1g").set("spark.app.name", "a")
    val shown = SparkFacts.redacted(conf).toMap
    assert(!shown.values.exists(_.contains("s3cr3t")) && shown("spark.app.name") == "a")
    assert(shown("spark.x.options") == "AccountKey=(redacted) -Xmx1g")
    val tree = Redaction.map(
      ListMap[String, Any](
        "error" -> Some("cannot open jdbc:x://h?user=a&password=s3cr3t"),
        "list" -> Seq[Any]("http://u:s3cr3t@h", 1),
        "nested" -> ListMap[String, Any]("fs.s3a.secret.key" -> "s3cr3t", "steps" -> Seq(1.5, 2.5))
      )
    )
    val text = Json.line(tree)
    assert(!text.contains("s3cr3t") && text.contains("[1.5,2.5]"), text)
  }
}
