"""Read and replace files, whoever wrote them; processes that have them open."""
