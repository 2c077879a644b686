"""Operations on queues and workers: one function each, behind thin doors."""
