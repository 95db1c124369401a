package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import sparkdlbench.config.Settings

/** The digits, which take three seconds to decode. */
final class SlowDigits extends DataSource {
  private val digits = new Digits
  def name = "slow-digits"
  def doc = digits.doc
  def inspect(settings: Settings, hadoop: Configuration): DataFacts = digits.inspect(settings, hadoop)
  def open(settings: Settings, hadoop: Configuration): DataSets = {
    Thread.sleep(3000)
    digits.open(settings, hadoop)
  }
}
