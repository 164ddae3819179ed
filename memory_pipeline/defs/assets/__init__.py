"""Assets: one module for what each grain holds, one for the marts."""
