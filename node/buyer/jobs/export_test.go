package jobs

import "slices"

// DeepCopy copies everything that s refers to.
func DeepCopy(s State) State {
	s = s.clone()
	for i := range s.Ranks {
		s.Ranks[i].Outputs = slices.Clone(s.Ranks[i].Outputs)
	}
	for i := range s.Gangs {
		s.Gangs[i].Ranks = slices.Clone(s.Gangs[i].Ranks)
	}
	if s.Params.Cluster != nil {
		c := *s.Params.Cluster
		s.Params.Cluster = &c
	}
	return s
}
