package sparkdlbench.transport
package push

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

/** Frames as a sender writes them. */
private[transport] object FrameBytes {
  def frame(lane: Int, sequence: Long, payload: Array[Byte]): Array[Byte] = {
    val bytes = ByteBuffer.allocate(Frame.HeaderBytes + payload.length)
    Frame.putHeader(bytes, lane, payload.length, sequence)
    bytes.put(payload).array
  }

  def control(word: Control): Array[Byte] = frame(Frame.ControlLane, 0, Control.print(word).getBytes(UTF_8))
}
