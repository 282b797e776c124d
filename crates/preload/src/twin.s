# The empty twin for 32-bit programs.
	.section .note.GNU-stack, "", @progbits
