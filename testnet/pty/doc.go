// Package pty runs a program on a terminal of its own, as a person at a keyboard does: it types, changes the window's
// size and reads the output.
package pty
