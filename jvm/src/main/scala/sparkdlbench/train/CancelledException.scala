package sparkdlbench.train

/** The user ended the run. */
final class CancelledException extends RuntimeException("the run was cancelled")
