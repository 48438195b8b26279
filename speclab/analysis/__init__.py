"""What a record tells afterwards: what-if, comparisons, where accepted tokens came from, what routing cost."""
