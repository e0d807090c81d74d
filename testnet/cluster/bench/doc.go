// Package bench measures how long clusters take to come up, beside the same engine in plain containers of the same
// machine. It has no more than its benchmark, which `starling testnet bench` runs.
package bench
