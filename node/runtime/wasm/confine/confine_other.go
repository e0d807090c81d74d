//go:build !linux

package confine

// enter does nothing: the means are those of Linux.
func enter(Box) (Confinement, error) { return Confinement{}, nil }

func (b Box) confineFiles() error { return nil }
