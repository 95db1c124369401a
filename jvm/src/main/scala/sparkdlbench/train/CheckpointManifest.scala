package sparkdlbench.train

import com.fasterxml.jackson.databind.JsonNode
import sparkdlbench.common.Json
import sparkdlbench.rank.{CheckpointAuthor, DataPosition, Snapshot}

import java.io.IOException
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * What makes the files of a step one checkpoint (`manifest.json`): whose they are, and of each its length, SHA-256 and ranges. A rank's record of its own
 * file has the same form, with one part; the manifest is all records together.
 */
private[train] final case class CheckpointManifest(
    author: CheckpointAuthor,
    step: Long,
    size: Int,
    data: DataPosition,
    parts: Seq[PartRecord]
) {
  def text: String = Json.text(
    Json.fields(
      "schema" -> CheckpointManifest.Schema,
      "run_id" -> author.runId,
      "attempt" -> author.attempt,
      "step" -> step,
      "world_size" -> size,
      "data" -> Json.fields("batch" -> data.batch, "seed" -> data.seed, "rows" -> data.rows, "set" -> data.set),
      "parts" -> parts.map { part =>
        Json.fields(
          "rank" -> part.rank,
          "file" -> part.file,
          "bytes" -> part.bytes,
          "sha256" -> part.sha256,
          "ranges" -> part.ranges.map(range =>
            Json.fields("name" -> range.name, "from" -> range.from, "length" -> range.length)
          )
        )
      }
    )
  )

  /** Why the parts are no whole checkpoint after `wanted` steps; None where they are. */
  def fault(wanted: Long): Option[String] = {
    val ranges = parts.flatMap(_.ranges).groupBy(_.name)
    val ranks = parts.map(_.rank)
    if (step != wanted) Some(s"it is of step $step")
    else if (ranks != (0 until size)) Some(s"it lists the ranks ${ranks.mkString(", ")} of $size")
    else
      parts.flatMap(partFault).headOption.orElse {
        ranges.toSeq
          .sortBy(_._1)
          .collectFirst(Function.unlift { case (name, each) =>
            Snapshot.untiled(each.map(range => (range.from, range.length)), None).map(why => s"of '$name' $why")
          })
      }
  }

  private def partFault(part: PartRecord): Option[String] = {
    val named = CheckpointManifest.fileName(part.rank, size, author)
    val values = part.ranges.map(_.length.toLong).sum
    if (part.file != named) Some(s"the file of rank ${part.rank} is '${part.file}' and should be '$named'")
    else if (part.ranges.exists(_.length < 0) || values > part.bytes / 4)
      Some(s"rank ${part.rank} has $values values in ${part.bytes} bytes")
    else None
  }
}

private[train] object CheckpointManifest {
  val Schema = 1
  val File = "manifest.json"

  /** Of one rank's values; it has the run and the attempt, so that no other's file is ever written over. */
  def fileName(rank: Int, size: Int, author: CheckpointAuthor): String =
    s"rank-$rank-of-$size.${author.runId}-${author.attempt}"

  /** Of the record that tells of that file. */
  def recordName(rank: Int, size: Int, author: CheckpointAuthor): String = fileName(rank, size, author) + ".json"

  /** The records of one rank each as one manifest, or why they are not of one checkpoint. */
  def merged(records: Seq[CheckpointManifest]): Either[String, CheckpointManifest] = {
    val first = records.head
    val all = first.copy(parts = records.flatMap(_.parts).sortBy(_.rank))
    records
      .find(each => each.copy(parts = Nil) != first.copy(parts = Nil))
      .map { other =>
        s"rank ${other.parts.map(_.rank).mkString} is at ${told(other)}, and rank ${first.parts.map(_.rank).mkString} at ${told(first)}"
      }
      .orElse(all.fault(first.step))
      .toLeft(all)
  }

  private def told(one: CheckpointManifest): String =
    s"step ${one.step}, ${one.data}, run ${one.author.runId}, attempt ${one.author.attempt}"

  /** @throws IOException it is no manifest */
  def read(text: String): CheckpointManifest = {
    val json = Try(Json.read(text)).getOrElse(throw new IOException("it is not JSON"))
    val schema = json.path("schema")
    if (!schema.isInt || schema.asInt != Schema)
      throw new IOException(s"its schema is $schema, and this version reads $Schema")
    val data = json.path("data")
    CheckpointManifest(
      CheckpointAuthor(word(json, "run_id"), int(json, "attempt")),
      long(json, "step"),
      int(json, "world_size"),
      DataPosition(int(data, "batch"), long(data, "seed"), int(data, "rows"), word(data, "set")),
      json.path("parts").elements.asScala.map(part).toList
    )
  }

  private def part(json: JsonNode): PartRecord = PartRecord(
    int(json, "rank"),
    word(json, "file"),
    long(json, "bytes"),
    word(json, "sha256"),
    json
      .path("ranges")
      .elements
      .asScala
      .map(range => PartRange(word(range, "name"), int(range, "from"), int(range, "length")))
      .toList
  )

  private def field(json: JsonNode, name: String, fits: JsonNode => Boolean): JsonNode = {
    val found = json.path(name)
    if (!fits(found)) throw new IOException(s"its '$name' is $found")
    found
  }

  private def word(json: JsonNode, name: String): String = field(json, name, _.isTextual).asText
  private def int(json: JsonNode, name: String): Int = field(json, name, _.isInt).asInt
  private def long(json: JsonNode, name: String): Long =
    field(json, name, found => found.isIntegralNumber && found.canConvertToLong).asLong
}
