# Sourced by project/sbt and project/mvn: brings one file by its Maven coordinates, through Maven or the Ivy inside pyspark.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools="${SPARKDL_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/sparkdl-bench/tools}"

fail() {
  echo "$(basename "$0"): $*" >&2
  exit 1
}

command -v java >/dev/null || fail "no java on the PATH. The build needs a JDK, version 17 or later; install one and try again."
java_version=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1)
[ "${java_version:-0}" -ge 17 ] || fail "the java on the PATH is version ${java_version:-unknown}. The build needs a JDK, version 17 or later."

# The jar of Ivy that every pyspark brings: of the checkout's virtual environments, then of SPARK_HOME.
ivy_jar() {
  local jar
  for jar in "$root"/.venv*/lib/python*/site-packages/pyspark/jars/ivy-*.jar "${SPARK_HOME:-/nonexistent}"/jars/ivy-*.jar; do
    if [ -f "$jar" ]; then
      echo "$jar"
      return
    fi
  done
  fail "needs Maven on the PATH, or a virtual environment .venv with pyspark in it (whose Ivy it then uses): run 'make venv'."
}

# by_ivy GROUP ARTIFACT VERSION CLASSIFIER EXTENSION FILE: brings the artifact to FILE; CLASSIFIER may be empty.
by_ivy() {
  local room descriptor ivy classifier=""
  ivy=$(ivy_jar) || exit 1
  [ -z "$4" ] || classifier="m:classifier=\"$4\""
  room=$(mktemp -d "$(dirname "$6")/.fetch.XXXXXX")
  descriptor="$room/ivy.xml"
  cat >"$descriptor" <<XML
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sparkdl-bench" module="tools"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="$1" name="$2" rev="$3" conf="default->master" transitive="false">
      <artifact name="$2" type="$5" ext="$5" $classifier/>
    </dependency>
  </dependencies>
</ivy-module>
XML
  if ! java -jar "$ivy" -ivy "$descriptor" -confs default -types "$5" \
    -retrieve "$room/[artifact].[ext]" >"$room/log" 2>&1 || [ ! -f "$room/$2.$5" ]; then
    cat "$room/log" >&2
    rm -rf "$room"
    fail "could not bring $1:$2:$3 through Ivy; its messages are above."
  fi
  mv "$room/$2.$5" "$6"
  rm -rf "$room"
}
