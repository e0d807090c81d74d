// Package nodepb holds the messages that a buyer and a provider exchange about
// a lease they hold: running workloads under it, watching them, metering it.
package nodepb
