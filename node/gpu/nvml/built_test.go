//go:build cgo && nvml

package nvml

const built = true
