// Package engine runs a Docker engine of its own, from the machine's packages, and a registry that it can reach, for
// tests and demonstrations of containers. The engine lives in a network namespace and a directory of its own and
// touches no other engine; nothing of it is left when it is closed.
//
//	<dir>/sock    its API                  <dir>/data    images and containers
//	<dir>/exec    running state            <dir>/log     its log
package engine
