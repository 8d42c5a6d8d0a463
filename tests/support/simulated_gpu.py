"""A script, for a process with NUMBA_ENABLE_CUDASIM=1, that runs `gpu_cases` in Numba's simulator of CUDA.

It prints the error of each case as a JSON object.
"""

import json
import sys
import threading

import numpy as np
from numba.cuda.simulator.kernel import BlockManager, Dim3

from relcrf.gpu import device

run_in_threads = BlockManager.run


def run_in_sequence(block, grid_point, *arguments):
    """Run the threads of a block one after another, in this thread of Python, unless they wait for each other.

    The simulator starts a thread of Python for each thread of a block and polls them, which takes four times as long. A
    device function that waits, or reads another property of its thread, raises an AttributeError here.
    """
    if "syncthreads" in block._f.__code__.co_names:
        run_in_threads(block, grid_point, *arguments)
        return
    thread = threading.current_thread()
    thread.blockIdx = Dim3(*grid_point)
    for block_point in np.ndindex(*block._block_dim):
        thread.threadIdx = Dim3(*block_point)
        block._f(*arguments)


if __name__ == "__main__":
    device.THREADS = 8  # kernels whose threads wait for each other run in as many threads of Python
    BlockManager.run = run_in_sequence

    from gpu_cases import CASES, run  # imports the kernels, which read THREADS

    print(json.dumps({case: run(case) for case in sys.argv[1:] or CASES}))
