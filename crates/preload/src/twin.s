# The twin for programs of 32 bits: nothing.
	.section .note.GNU-stack, "", @progbits
