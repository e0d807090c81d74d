// Package engine runs a separate Docker engine, from the machine's packages, and a registry that it can reach, for
// tests and demonstrations of containers. The engine uses its own network namespace and directory and affects no other
// engine; closing it removes everything.
//
//	<dir>/sock    its API                  <dir>/data    images and containers
//	<dir>/exec    running state            <dir>/log     its log
package engine
