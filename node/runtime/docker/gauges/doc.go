// Package gauges computes probes of leases on the devices of their executions: on the processors with a program of ours
// among those of the container, on GPUs from outside it. The guard keeps the execution's program stopped meanwhile.
//
// It needs the line to the guard (package link). It has the rate of the fastest GPUs that were gauged.
package gauges
