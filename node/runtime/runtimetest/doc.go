// Package runtimetest holds the conformance test of runtimes, and Fake, a runtime inside the test's own process that
// passes it. Package guest beneath it has the program that the test runs in each of them.
package runtimetest
