// Package engine runs a Docker engine of its own, from the machine's packages, and a registry that it can reach: what
// tests and demonstrations of containers need. The engine lives in a network namespace and a directory of its own and
// touches no other engine; nothing of it is left when it is closed.
//
//	<dir>/sock    where it answers         <dir>/data    images and containers
//	<dir>/exec    what runs                <dir>/log     what it says
package engine
