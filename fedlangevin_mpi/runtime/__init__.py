"""The program that runs: who hosts whom, the randomness of a block, compilation, and the block loop."""
