"""Programs that look at themselves: what each prints must not tell how it was started.

Each stands in a file of its own beside the others; `FLAGS` and `FORMS` say how it is started, where
that is not `python see_NAME.py one two`.
"""

from __future__ import annotations

PROGRAMS = {
    "nothing": "",
    "main_module": """
        import sys
        main = sys.modules["__main__"]
        print(sorted(vars(main)))
        for name in ("__name__", "__file__", "__doc__", "__package__", "__spec__", "__cached__"):
            print(name, repr(getattr(main, name, "is not there")))
        print(type(main.__loader__), main.__builtins__ is sys.modules["builtins"])
        print(main.__dict__ is globals(), __annotations__)
    """,
    "arguments": """
        import sys
        print(sys.argv, sys.orig_argv, sys.executable, sys.flags, sys.warnoptions, sys._xoptions)
    """,
    "paths": """
        import os, site, sys
        print(sys.path, sys.prefix, sys.base_prefix, sys.pycache_prefix, os.getcwd())
        print(sys.meta_path, sys.path_hooks, site.ENABLE_USER_SITE)
        print(sorted(path for path in sys.path_importer_cache if "holdfast/standby" in path))
    """,
    "environment": """
        import os, ctypes
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_char_p
        print(sorted(os.environ.items()))
        print([name for name in os.environ if getenv(name.encode()) != os.environb[name.encode()]])
        print(getenv(b"HOLDFAST_STANDBY_TASK"), getenv(b"PYTHONPATH"))
        os.environ["ADDED"] = "yes"
        os.system("echo $ADDED $PYTHONPATH $HOLDFAST_STANDBY_TASK")
    """,
    "modules_of_ours": """
        import sys
        print([name for name in sys.modules if "standby" in name or name.endswith("customize")])
    """,
    "descriptors": """
        import os
        for name in sorted(os.listdir("/proc/self/fd"), key=int):
            try:
                print(name, os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
            except FileNotFoundError:
                print(name, "was the folder")
        print(os.open("/dev/null", os.O_RDONLY), [os.get_inheritable(fd) for fd in range(3)])
    """,
    "threads": """
        import os, threading
        print(len(threading.enumerate()), threading.current_thread() is threading.main_thread())
        print(os.listdir("/proc/self/task") == [str(os.getpid())], threading.active_count())
        print(threading.main_thread().native_id == os.getpid())
    """,
    "names": """
        import os
        print(open("/proc/self/comm").read(), open("/proc/self/cmdline").read().split("\\0"))
        print(os.getpgid(0) == os.getpid(), os.nice(0), os.sched_getscheduler(0))
    """,
    "signals": """
        import signal
        for number in sorted(signal.valid_signals()):
            print(number, signal.getsignal(number))
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getitimer(signal.ITIMER_PROF))
        print([line for line in open("/proc/self/status") if line.startswith("Sig")][1:])
    """,
    "children_signals": """
        import subprocess, sys
        show = "print([line for line in open('/proc/self/status') if line.startswith('SigIgn')])"
        for restore in (True, False):
            subprocess.run([sys.executable, "-S", "-c", show], restore_signals=restore)
    """,
    "stdin": """
        import sys
        print(repr(sys.stdin.read()), sys.stdin.isatty(), sys.stdin.encoding, sys.stdin.name)
        try:
            input("a question? ")
        except EOFError as error:
            print(error)
    """,
    "streams": """
        import sys
        for stream in (sys.stdout, sys.stderr):
            print(stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering)
            print(stream.write_through, stream.fileno())
            print(stream is getattr(sys, f"__{stream.name[1:-1]}__"))
        print("to the other one", file=sys.stderr)
        sys.stdout.buffer.write(b"bytes\\n")
    """,
    "stack": """
        import inspect, sys, traceback
        def inner():
            traceback.print_stack()
            print([(frame.filename, frame.function, frame.lineno) for frame in inspect.stack()])
            frame, depth = sys._getframe(), 0
            while frame:
                frame, depth = frame.f_back, depth + 1
            print(depth)
        inner()
    """,
    "recursion": """
        import sys
        def depth(n=1):
            try:
                return depth(n + 1)
            except RecursionError:
                return n
        print(sys.getrecursionlimit(), depth())
    """,
    "error": """
        def fail(value):
            return 1 / value
        fail(0)
    """,
    "error_chain": """
        try:
            {}["missing"]
        except KeyError as error:
            raise ValueError("first this, then that") from error
    """,
    "error_group": """
        raise ExceptionGroup("several", [ValueError(1), TypeError("two")])
    """,
    "error_with_note": """
        try:
            open("/nonexistent/file")
        except OSError as error:
            error.add_note("a note")
            raise
    """,
    "syntax_error": "def broken(:\n    pass\n",
    "bad_indent": "if True:\nprint(1)\n",
    "exit_number": "import sys; sys.exit(3)\n",
    "exit_none": "import sys; sys.exit(None)\n",
    "exit_true": "import sys; sys.exit(True)\n",
    "exit_words": "import sys; sys.exit('cannot go on')\n",
    "exit_big": "import sys; sys.exit(1 << 40)\n",
    "exit_negative": "import sys; sys.exit(-1)\n",
    "exit_tuple": "raise SystemExit(1, 2)\n",
    "exit_raised": "raise SystemExit\n",
    "exit_hard": "import os; print('said'); os._exit(9)\n",
    "exit_75": "raise SystemExit(75)\n",
    "interrupted": """
        import signal, time
        signal.raise_signal(signal.SIGINT)
        time.sleep(60)
    """,
    "terminated": """
        import time
        print("there", flush=True)
        time.sleep(60)
    """,
    "handled": """
        import signal, sys, threading
        done = threading.Event()
        def handler(number, frame):
            print("got", number)
            done.set()
        signal.signal(signal.SIGTERM, handler)
        print("there", flush=True)
        done.wait(60)
        sys.exit(4)
    """,
    "keyboard_interrupt": "raise KeyboardInterrupt\n",
    "abort": "import os; os.abort()\n",
    "segfault": "import faulthandler; faulthandler._sigsegv()\n",
    "faulthandler_enabled": """
        import faulthandler
        print(faulthandler.is_enabled())
        faulthandler.dump_traceback(all_threads=True)
    """,
    "excepthook": """
        import sys
        def hook(kind, error, trace):
            print("hook:", kind.__name__, error, trace.tb_lineno, trace.tb_frame.f_code.co_name)
            print(trace.tb_next)
            sys.exit(17)
        sys.excepthook = hook
        raise RuntimeError("for the hook")
    """,
    "excepthook_fails": """
        import sys
        def hook(kind, error, trace):
            raise TypeError("in the hook")
        sys.excepthook = hook
        raise RuntimeError("outside")
    """,
    "unraisable": """
        class Bad:
            def __del__(self):
                raise ValueError("while dying")
        Bad()
        print("on")
    """,
    "at_exit": """
        import atexit, threading
        import asyncio, json, logging, multiprocessing, pdb, pickle  # they may register some, too
        atexit.register(print, "registered first, called last")
        atexit.register(print, "registered last, called first")
        atexit.register(lambda: 1 / 0)
        main_is_over = threading.Event()
        def wait():
            main_is_over.wait()
            print("a thread is waited for")
        thread = threading.Thread(target=wait)
        thread.start()
        print(atexit._ncallbacks())
        class Late:
            def __del__(self, print=print):
                print("deleted")
        late = Late()
        main_is_over.set()
    """,
    "broken_pipe": """
        import os
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        print("goes nowhere")
    """,
    "warnings": """
        import warnings
        def old():
            warnings.warn("old thing", DeprecationWarning, stacklevel=2)
        old()
        old()
        warnings.warn("for the user")
        print(warnings.filters)
        print(sorted(map(str, __warningregistry__)))
        "a" is "b"
    """,
    "source": """
        import inspect, linecache, sys
        def mine(a, b=2):
            return a + b  # a comment
        class Mine:
            pass
        print(inspect.getsource(mine), inspect.getsource(Mine), inspect.getfile(mine))
        print(inspect.getmodule(mine) is sys.modules["__main__"], inspect.signature(mine))
        print(linecache.getline(__file__, 3), mine.__code__.co_filename)
        print(len(inspect.getsource(sys.modules["__main__"])))
    """,
    "pickled": """
        import pickle, sys
        class Mine:
            def __init__(self, value):
                self.value = value
        text = pickle.dumps(Mine(3))
        print(text, pickle.loads(text).value, Mine.__module__, Mine.__qualname__)
        print(pickle.loads(text).__class__ is Mine)
    """,
    "spawned": """
        import multiprocessing, os, sys
        class Mine:
            value = 7
        def work(queue, mine):
            main = sys.modules["__main__"]
            queue.put((mine.value, main.__name__, Mine.__module__, sys.argv, sys.path))
            queue.put((os.path.basename(main.__file__), sorted(os.environ)))
        if __name__ == "__main__":
            for method in ("spawn", "forkserver", "fork"):
                context = multiprocessing.get_context(method)
                queue = context.Queue()
                process = context.Process(target=work, args=(queue, Mine()))
                process.start()
                print(method, queue.get(), queue.get())
                process.join()
                print(process.exitcode)
    """,
    "pool": """
        import concurrent.futures, multiprocessing
        def square(x):
            return x * x
        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
                print(list(pool.map(square, range(4))))
    """,
    "neighbour": """
        import os, neighbour_module
        print(neighbour_module.__file__, neighbour_module.VALUE, neighbour_module.__spec__)
        print(sorted(os.listdir("__pycache__")))
    """,
    "late_import": """
        import importlib, sys
        for name in ("colorsys", "json.tool", "numpy.linalg", "wave"):
            module = importlib.import_module(name)
            print(module.__name__, module.__spec__.origin, name in sys.modules)
    """,
    "learned_import": """
        import sys
        import json, numpy, logging
        print(json.dumps({"a": numpy.arange(3).tolist()}), logging.getLogger().handlers)
        print(numpy.__file__, sys.modules["json"].decoder is json.decoder)
        logging.warning("on standard error")
    """,
    "path_changed": """
        import sys
        sys.path.insert(0, "sub")
        import only_there
        print(only_there.__file__)
    """,
    "interactive": """
        import builtins, sys
        print(hasattr(sys, "ps1"), sys.flags.interactive, sys.displayhook, sys.breakpointhook)
        print([name for name in dir(builtins) if name in ("copyright", "exit", "_", "help")])
    """,
    "debugger": "import pdb; x = 41; pdb.set_trace(); print(x)\n",
    "breakpoint": "breakpoint()\n",
    "asynchronous": """
        import asyncio
        async def main():
            await asyncio.sleep(0)
            return asyncio.current_task().get_name()
        print(asyncio.run(main()))
        asyncio.run(asyncio.wait_for(asyncio.sleep(10), 0.001))
    """,
    "subprocess": """
        import subprocess, sys
        show = "import sys, os; print(sys.path, sys.argv, sorted(os.environ))"
        print(subprocess.run([sys.executable, "-c", show], capture_output=True, text=True))
    """,
    "replaced": """
        import os, sys
        if len(sys.argv) == 3:
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, *sys.argv, "again"])
        print(sys.argv, sorted(os.environ))
    """,
    "module_run": """
        import runpy
        print(sorted(runpy.run_path("neighbour_module.py", run_name="other")))
    """,
    "encoding_line": "# -*- coding: latin-1 -*-\nprint(len('\\xe9'))\n",
    "garbage": """
        import gc
        print(gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug(), gc.garbage)
        print(gc.callbacks)
    """,
    "tracing": """
        import sys, threading, tracemalloc
        print(sys.gettrace(), sys.getprofile(), threading._trace_hook, tracemalloc.is_tracing())
        print(sys.getswitchinterval(), sys.dont_write_bytecode, sys.hash_info.algorithm, hash("a"))
    """,
    "limits": """
        import resource
        for name in sorted(dir(resource)):
            if name.startswith("RLIMIT_"):
                print(name, resource.getrlimit(getattr(resource, name)))
    """,
    "random_numbers": """
        import random, numpy
        random.seed(3)
        numpy.random.seed(3)
        print(random.random(), numpy.random.rand(), random.Random(5).random())
    """,
    "locale": """
        import locale, sys
        print(locale.getlocale(), sys.getfilesystemencoding(), locale.setlocale(locale.LC_ALL))
    """,
    "logging_names": """
        import logging
        logging.basicConfig(format="%(filename)s %(funcName)s %(lineno)d %(processName)s")
        logging.error("where am I")
    """,
    "namespace": """
        globals()["__name__"] = "renamed"
        class Mine: pass
        print(Mine.__module__)
        del __file__
        print("__file__" in globals())
    """,
}

BESIDE = {
    "neighbour_module.py": "VALUE = 5\n",
    "sub/only_there.py": "",
    "package/__init__.py": "print('package', __name__)\n",
    "package/__main__.py": """
        import sys
        print(__name__, __package__, __spec__, sys.argv, sys.path[0])
        from . import inner
        print(inner.__name__)
    """,
    "package/inner.py": """
        import sys, traceback
        print(__name__, __package__, sys.argv, sorted(globals()))
        traceback.print_stack()
        if __name__ == "__main__":
            raise ValueError("as a module")
    """,
    "folder/__main__.py": """
        import sys
        print(__name__, __file__, __package__, __spec__, sys.path[0], sys.argv)
    """,
}

# name → (arguments of Python instead of the program's file, the program's own)
FORMS = {
    "as_package": (["-m", "package"], ["a"]),
    "as_module": (["-mpackage.inner"], ["-m", "b"]),
    "as_missing_module": (["-m", "package.missing"], []),
    "as_library_module": (["-m", "json.tool"], ["--help"]),
    "as_code": (["-c", "import sys; print(sys.argv, sys.path[0], __name__, dir())"], ["c", "-d"]),
    "as_failing_code": (["-c", "1 / 0"], []),
    "as_folder": (["folder"], ["a"]),
    "as_missing_file": (["missing.py"], []),
    "unbuffered": (["-u", "see_streams.py"], []),
    "optimised": (["-OO", "see_main_module.py"], []),
    "safe_path": (["-P", "see_paths.py"], []),
    "warned": (["-W", "error", "-Xdev", "see_arguments.py"], []),
    "warned_to_death": (["-Werror::UserWarning", "see_warnings.py"], []),
    "without_user_site": (["-s", "see_paths.py"], []),
    "without_bytecode": (["-B", "see_tracing.py"], []),
    "in_a_folder": (["sub/../see_paths.py"], []),
    "cached_elsewhere": (["-X", "pycache_prefix=cache", "see_paths.py"], []),
}
