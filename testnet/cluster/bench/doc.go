// Package bench measures the start time of clusters, beside the same engine in plain containers of the same machine. It
// contains only its benchmark, which `starling testnet bench` runs.
package bench
