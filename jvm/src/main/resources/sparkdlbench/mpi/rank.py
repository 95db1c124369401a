"""One rank of the MPI job that transport `mpi` runs, beside one Spark task: `rank.py FOLDER`.

The task and this process share mapped files: for each lane that starts at the rank two slots that the task fills and
this process sends, for each lane that ends there two slots that this process fills. Words are 64 bits in the machine's
order, and each is written by one side alone. The task says what it wants by files in FOLDER (mode 0700), this process
likewise:

- `job.json` (task): rank, size, the run's secret, the task's process (number and start).
- `ready.json` (here): this process' number, the MPI library; every other rank has proved that it knows the secret.
- `open-N.json` (task), N = 0, 1, …: a mapped file and its lanes; both are removed as soon as they are mapped.
- `stop` (task): send what is there, say goodbye, end.

A mapped file: word 0: this process has mapped it; byte 64 + R: rank R has left; lanes at their offsets, as the task's
LaneSlots.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import mmap
import os
import secrets
import shutil
import sys
import time
from pathlib import Path

from mpi4py import MPI

NONCE_BYTES = 32
SLOTS_AT = 128
LEFT_AT = 64
LOOK_S = 0.01
WATCH_S = 0.25
YIELD_S = 0.005
NAP_S = 0.0001
# So much a link carries in spite of naps (61 MB/s were measured): what takes longer is not held up by them.
NAPPING_BYTES_S = 30e6
GOODBYE_S = 10.0


class Lane:
    """One lane's words and slots; `next` is the number of the message to start, `ended` of the one to report."""

    def __init__(self, memory: memoryview, told: dict[str, int]) -> None:
        self.tag, self.capacity = told["id"], told["capacity"]
        self.peer = told["peer"]
        stride = (self.capacity + 63) // 64 * 64
        at = told["offset"]
        self.words = memory[at : at + SLOTS_AT].cast("q")
        self.slots = [memory[at + SLOTS_AT + i * stride : at + SLOTS_AT + i * stride + self.capacity] for i in (0, 1)]
        self.next = 0
        self.ended = 0
        self.done = [False, False]


class Relay:
    """Moves messages between the task's memory and the other ranks, until the task says stop or has ended."""

    def __init__(self, folder: Path, job: dict[str, object]) -> None:
        self.folder = folder
        self.world = MPI.COMM_WORLD
        self.rank = self.world.rank
        self.task = (int(str(job["pid"])), str(job["started"]))
        self.goodbye = self.world.Dup()
        self.byes: dict[int, MPI.Request] = {}
        self.left: set[int] = set()
        self.files: list[memoryview] = []
        self.outgoing: list[Lane] = []
        self.incoming: list[Lane] = []
        self.requests: list[MPI.Request] = []
        self.about: list[tuple[Lane, int, bool]] = []
        self.statuses: list[MPI.Status] = []
        self.active = 0.0  # when a message began to leave, or ended
        self.leaving = 0  # bytes that are being sent
        self.arriving = 0  # bytes that may be under way to us at once: the largest message from every other rank
        self.generation = 0
        self.stopping = False
        self.stopped_at = 0.0
        self.looked = self.watched = time.monotonic()

    def run(self) -> None:
        for peer in range(self.world.size):
            if peer != self.rank:
                self.byes[peer] = self.goodbye.Irecv([bytearray(1), MPI.BYTE], peer, 0)
        while not self.stopping or self.unsent():
            busy = self.start() | self.finish()
            now = time.monotonic()
            self.look(now)
            if self.stopping and now - self.stopped_at > GOODBYE_S and self.in_vain():
                fail("a rank has left while a message to it was under way")  # which ends all processes of the job
            if busy:
                self.active = now
            elif self.quiet(now):
                time.sleep(NAP_S)
            else:
                os.sched_yield()
        self.end()

    def quiet(self, now: float) -> bool:
        """Whether nothing has happened for so long that a nap holds nothing up.

        MPI moves a message only while it is asked about it, some kilobytes each time: with naps in between a fast link
        is half idle. What leaves is known. What arrives is not, since receives are posted long before and cannot be
        probed: so for a while after each message the next one is taken to be on its way. A rank that computes for long,
        or waits for others, so naps all the same, and leaves its core to them.
        """
        return now - self.active > YIELD_S + max(self.leaving, self.arriving) / NAPPING_BYTES_S

    def unsent(self) -> bool:
        return any(sending for _, _, sending in self.about) or any(lane.words[0] > lane.next for lane in self.outgoing)

    def in_vain(self) -> bool:
        """Whether a message is under way to a rank that has left, and so will never take it."""
        return any(sending and lane.peer in self.left for lane, _, sending in self.about)

    def start(self) -> bool:
        """Sends what the task has published, and makes its free slots ready to receive."""
        busy = False
        for lane in self.outgoing:
            while lane.next - lane.ended < 2 and lane.words[0] > lane.next:
                slot = lane.next & 1
                data = lane.slots[slot][: lane.words[1 + slot]]
                self.begin(self.world.Isend([data, MPI.BYTE], lane.peer, lane.tag), lane, lane.next, True)
                self.leaving += len(data)
                lane.next += 1
                busy = True
        if not self.stopping:
            for lane in self.incoming:
                while lane.next - lane.words[8] < 2:
                    data = lane.slots[lane.next & 1]
                    self.begin(self.world.Irecv([data, MPI.BYTE], lane.peer, lane.tag), lane, lane.next, False)
                    lane.next += 1
        return busy

    def begin(self, request: MPI.Request, lane: Lane, sequence: int, sending: bool) -> None:
        self.requests.append(request)
        self.about.append((lane, sequence, sending))

    def finish(self) -> bool:
        """Reports what has been sent or has arrived, each lane's messages in their order."""
        if not self.requests:
            return False
        # Kept from look to look: there may be a hundred of them, and ten thousand looks a second.
        self.statuses += [MPI.Status() for _ in range(len(self.requests) - len(self.statuses))]
        statuses = self.statuses[: len(self.requests)]
        ended = MPI.Request.Testsome(self.requests, statuses)
        if not ended:
            return False
        for position, index in enumerate(ended):
            lane, sequence, sending = self.about[index]
            slot = sequence & 1
            lane.done[slot] = True
            if sending:
                self.leaving -= lane.words[1 + slot]  # the task leaves it as it is until it hears of the end
            else:
                lane.words[1 + slot] = statuses[position].Get_count(MPI.BYTE)
            while lane.ended < lane.next and lane.done[lane.ended & 1]:
                lane.done[lane.ended & 1] = False
                lane.ended += 1
                lane.words[8 if sending else 0] = lane.ended
        gone = set(ended)
        self.requests = [each for index, each in enumerate(self.requests) if index not in gone]
        self.about = [each for index, each in enumerate(self.about) if index not in gone]
        return True

    def look(self, now: float) -> None:
        """What changes seldom: new lanes, the task's wish to stop, goodbyes, the task's life."""
        if now - self.looked < LOOK_S:
            return
        self.looked = now
        wanted = self.folder / f"open-{self.generation}.json"
        if wanted.exists():
            self.open(wanted)
        if not self.stopping and (self.folder / "stop").exists():
            self.stopping = True
            self.stopped_at = now
        for peer, request in list(self.byes.items()):
            if request.Test():
                del self.byes[peer]
                self.left.add(peer)
                for memory in self.files:
                    memory[LEFT_AT + peer] = 1
        if now - self.watched > WATCH_S:
            self.watched = now
            if not runs(*self.task):
                self.orphaned()

    def open(self, wanted: Path) -> None:
        told = json.loads(wanted.read_text())
        path = Path(told["path"])
        with path.open("r+b") as file:
            memory = memoryview(mmap.mmap(file.fileno(), 0))
        path.unlink()
        wanted.unlink()
        self.files.append(memory)
        for peer in self.left:
            memory[LEFT_AT + peer] = 1
        self.outgoing += [Lane(memory, lane) for lane in told["outgoing"]]
        self.incoming += [Lane(memory, lane) for lane in told["incoming"]]
        self.arriving = (self.world.size - 1) * max((lane.capacity for lane in self.incoming), default=0)
        self.generation += 1
        memory[:8].cast("q")[0] = 1

    def end(self) -> None:
        """Says goodbye, takes back what waits for messages that will not come, and leaves with the others."""
        sent = [self.goodbye.Isend([b"\0", MPI.BYTE], peer, 0) for peer in range(self.world.size) if peer != self.rank]
        for request in self.requests:
            request.Cancel()
            request.Wait()
        deadline = time.monotonic() + GOODBYE_S
        waiting = [*sent, *self.byes.values()]
        # Whoever still trains must not wait for our part in the end of the job, nor we for his for ever.
        while not MPI.Request.Testall(waiting):
            if not runs(*self.task) and time.monotonic() > deadline:
                self.orphaned()
            time.sleep(NAP_S)

    def orphaned(self) -> None:
        """The task is gone without a word: its part of the cleaning is ours, and the others must hear of it."""
        shutil.rmtree(self.folder.parent, ignore_errors=True)
        fail(f"the Spark task beside MPI rank {self.rank} (process {self.task[0]}) has ended")


def runs(pid: int, started: str) -> bool:
    """Whether that very process runs: field 22 of proc(5) is its start; fields are counted behind the name."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return fields[0] not in "ZX" and fields[19] == started


def prove(world: MPI.Comm, secret: bytes) -> None:
    """Every rank proves to every other that it knows the run's secret: HMAC-SHA-256 over fresh nonces of both."""
    nonces = bytearray(NONCE_BYTES * world.size)
    world.Allgather([secrets.token_bytes(NONCE_BYTES), MPI.BYTE], [nonces, MPI.BYTE])

    def proof(prover: int, asker: int) -> bytes:
        both = nonces[prover * NONCE_BYTES :][:NONCE_BYTES] + nonces[asker * NONCE_BYTES :][:NONCE_BYTES]
        return hmac.digest(secret, b"mpi %d %d " % (prover, asker) + both, hashlib.sha256)

    mine = b"".join(proof(world.rank, other) for other in range(world.size))
    theirs = bytearray(len(mine))
    world.Alltoall([mine, MPI.BYTE], [theirs, MPI.BYTE])
    for other in range(world.size):
        if not hmac.compare_digest(bytes(theirs[other * NONCE_BYTES :][:NONCE_BYTES]), proof(other, world.rank)):
            fail(f"MPI rank {other} does not know the run's secret")


def fail(why: str) -> None:
    sys.stderr.write(f"sparkdl-bench: {why}.\n")
    sys.stderr.flush()
    MPI.COMM_WORLD.Abort(1)


def say(folder: Path, name: str, content: object) -> None:
    draft = folder / f".{name}"
    draft.write_text(json.dumps(content))
    draft.rename(folder / name)


def main() -> None:
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    (folder / "job.json").unlink()
    world = MPI.COMM_WORLD
    try:
        if (world.rank, world.size) != (job["rank"], job["size"]):
            fail(f"MPI started rank {world.rank} of {world.size} where rank {job['rank']} of {job['size']} was due")
        prove(world, bytes.fromhex(job["secret"]))
        library = MPI.Get_library_version().split(",")[0].strip()
        say(folder, "ready.json", {"pid": os.getpid(), "library": library, "host": MPI.Get_processor_name()})
        Relay(folder, job).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
