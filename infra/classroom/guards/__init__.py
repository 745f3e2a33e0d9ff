"""What stops machines: schedules, budgets, alarms, and the roles they act with."""
