"""What commands under the supervisor do in tests. Little is imported: each is a process."""

import itertools
import os
import signal
import time
from pathlib import Path


def ends(status):
    return status


def inspects(arguments, number, is_after):
    """Run the command, which dies while it reads the model, or behind its output."""
    from deploykit.api import inspection
    from deploykit.cli import main

    inspect = inspection.inspect_graph

    def dying(*given, **options):
        if is_after:
            return inspect(*given, **options)
        if number > 0:
            return os.kill(os.getpid(), number)
        return fills_shared_memory()

    inspection.inspect_graph = dying
    main.run(arguments)
    dies(number)


def dies(number):
    os.kill(os.getpid(), number)
    time.sleep(60)


def computes_for_ever():
    """In C, where no handler of Python's can run."""
    from deploykit.transforms.runtime import process_limits

    process_limits.bound(seconds=0.3)
    sum(range(1 << 60))


def waits_for_another_process():
    """Longer than the stretches of its own work may take."""
    from deploykit.transforms.runtime import process_limits

    process_limits.bound(seconds=3)  # a busy machine takes its time to end a process
    with process_limits.waiting(), process_limits.waiting():
        time.sleep(3.5)
    return 0


def takes_memory():
    from deploykit.transforms.runtime import process_limits

    process_limits.bound(memory=200 << 20)
    try:
        len(bytearray(1 << 30))
    except MemoryError:
        return 6
    return 0


def fills_shared_memory():
    """Which is no private address space."""
    import mmap

    from deploykit.transforms.runtime import process_limits

    process_limits.bound(memory=100 << 20)
    held = mmap.mmap(-1, 300 << 20)
    held.write(b"x" * 1000)
    for start in range(0, len(held), 1 << 20):
        held[start : start + (1 << 20)] = b"x" * (1 << 20)
        time.sleep(0.001)
    time.sleep(60)


def has_default_caps():
    """In this process and in its children, of what is available."""
    from deploykit.transforms.runtime import child_process, memory, process_limits, resident_memory

    own_limit = "deploykit.transforms.runtime.resident_memory:own_limit"
    caps = [resident_memory.own_limit(), child_process.call(own_limit)]
    most = 0.75 * memory._of_machine()
    assert caps == [process_limits.default_cap()] * 2
    assert 0 < caps[0] < most
    process_limits.bound(memory=1 << 40)
    with child_process.ResourceLimits(memory=1 << 40):
        asked = child_process.call(own_limit)
    assert resident_memory.own_limit() == asked == 1 << 40
    return 0


def starts_a_child_that_grows_while_it_computes():
    """The child holds more than its limit while no thread of this process can look at it."""
    from deploykit.transforms.runtime.child_process import ResourceLimits, Worker

    with ResourceLimits(memory=400 << 20):
        worker = Worker(f"{__name__}:grows")
    sum(itertools.repeat(1, 3 << 29))  # some 10 seconds in C, in which no other thread runs
    worker._child.process.poll()
    assert worker._child.process.returncode == -signal.SIGKILL
    return 0


def grows():
    from deploykit.transforms.runtime.resident_memory import importing_engine

    with importing_engine():
        pass
    held = []
    while True:
        held.append(bytearray(b"x") * (1 << 20))
        time.sleep(0.001)


def dies_under_a_cap(how):
    """As libraries do that cannot allocate."""
    from deploykit.transforms.runtime import process_limits

    process_limits.bound(memory=1 << 30)
    if how < 0:
        os.kill(os.getpid(), -how)
    os._exit(how)


def leaves_at_once():
    os._exit(0)


def leaves_files():
    """A temporary one, and one that was begun beside its place."""
    import tempfile

    from deploykit.transforms.untrusted.file_locks import note

    tempfile.mkdtemp()
    for partial in (Path(".a.pb.1.tmp"), Path(".\udc80\n.tmp")):
        note(partial)
        partial.touch()
    Path("other.tmp").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def starts_children():
    """From a thread that ends: one that computes, and one that has one itself."""
    import threading

    from deploykit.transforms.runtime.child_process import Worker

    made = []

    def start():
        made.append(Worker(f"{__name__}:computing"))
        made.append(Worker(f"{__name__}:having_one"))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    print(made[0].pid, made[1].created(), made[1].pid, flush=True)
    made[0].created()


def computing():
    sum(range(1 << 60))


def having_one():
    from deploykit.transforms.runtime import child_process

    worker = child_process.Worker(f"{__name__}:computing")
    _kept.append(worker)
    return worker.pid


_kept = []


def is_interrupted_in_a_callback():
    """Where Python ignores exceptions."""

    class Watched:
        def __del__(self):
            os.kill(os.getpid(), signal.SIGINT)

    watched = Watched()
    del watched
    time.sleep(60)
