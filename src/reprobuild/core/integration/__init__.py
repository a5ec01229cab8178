"""Integration: pull-request heads, in order, on a base. Pure: plans and answers, no git."""
