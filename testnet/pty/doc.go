// Package pty runs a program on a new terminal, as a user does: it types, changes the window's size and reads the
// output.
package pty
