"""When everything happens: engines, DMA queues, memories, and what the compiler may do."""
