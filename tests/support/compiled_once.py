"""Where several processes test a cold installation, one compiles a kernel, and the others wait and load it."""

import fcntl
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher


def compile_each_kernel_once() -> None:
    """From now on this process holds a kernel's lock while it compiles it; the compiler's own one is taken first."""
    compile_here, held = Dispatcher.compile, set[Path]()

    def compile_once(self: Any, signature: Any) -> Any:
        with global_compiler_lock:
            folder, code = self._cache.cache_path, self.py_func.__code__
            lock = Path(folder or "", f"{Path(code.co_filename).stem}.{code.co_qualname}.lock")
            if folder is None or lock in held:  # it is not kept on disk, or calls itself
                return compile_here(self, signature)
            Path(folder).mkdir(parents=True, exist_ok=True)
            with lock.open("w") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                held.add(lock)
                try:
                    return compile_here(self, signature)
                finally:
                    held.remove(lock)

    Dispatcher.compile = compile_once
