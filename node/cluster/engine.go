package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// MaxMembers bounds the ranks of one cluster: each has a list of all others.
const MaxMembers = 256

// TokenFile is the name of the file with the secret that authenticates the members of a cluster's engine.
const TokenFile = "ray_token"

// The ports that engines listen on at the head.
const (
	PortRay           = 6379  // Ray's global control store, which workers join
	PortRayDashboard  = 8265  // and its jobs API
	PortRayClient     = 10001 // ray.init("ray://…")
	PortTorch         = 29500 // torchrun's rendezvous
	PortDask          = 8786  // Dask's scheduler
	PortDaskDashboard = 8787
)

// Class is how near the members of a cluster are to one another: the slowest path between any two of them.
//
//	lan    one site:      at least 10 Gbit/s, under 1 ms     tensor parallelism, sharded training
//	metro  one region:    at least 1 Gbit/s, under 15 ms     data-parallel training of small models, MPI
//	wan    anywhere:      any internet path              tasks that seldom talk: Ray, Dask, batch inference, DiLoCo
type Class string

// The classes.
const (
	LAN   Class = "lan"
	Metro Class = "metro"
	WAN   Class = "wan"
)

// classes are from the fastest to the slowest.
var classes = []Class{LAN, Metro, WAN}

// Check returns an error for an unknown class.
func (c Class) Check() error {
	if !slices.Contains(classes, c) {
		return fmt.Errorf("%.40q is not a network class: want lan, metro or wan", string(c))
	}
	return nil
}

// Admits reports whether a network of class is meets the requirements of c.
func (c Class) Admits(is Class) bool {
	return c.Check() == nil && is.Check() == nil && slices.Index(classes, is) <= slices.Index(classes, c)
}

// Ends is the condition on its ranks' ends for the end of a cluster.
type Ends string

// The ends.
const (
	// EndsHead: the cluster's work ends with the head's program; the other ranks only serve it.
	EndsHead Ends = "head"
	// EndsAll: each rank's program ends by itself, and the work ends with the last of them.
	EndsAll Ends = "all"
)

// Engine makes one cluster of machines that reach one another.
type Engine struct {
	Name string
	// Needs is the slowest network that it can work on; Why is the reason.
	Needs Class
	Why   string
	Ends  Ends
	// Serves: without a command it waits for work from outside until it is taken down.
	Serves bool
	// Binds: the programs of the other ranks depend on the head's program at their start, so that all begin again with
	// it.
	Binds bool
	// HeadFirst means that the other ranks start by connecting to the head's service, and wait until it is up.
	HeadFirst bool
	// Options are the options for users, each with its effect and form.
	Options map[string]Option

	template template
}

// Option is something about an engine that a user may set.
type Option struct {
	Help  string
	check func(text string) error
}

// Engines are all that there are, by name.
var Engines = map[string]Engine{
	"ray": {
		Name: "ray", template: ray, Needs: WAN, Ends: EndsHead, Binds: true, HeadFirst: true, Serves: true,
		Options: map[string]Option{
			"objectStore": {"MiB of memory of each node for objects; 30 % of its memory by default",
				number(64, 1<<24)},
		},
	},
	"torchrun": {
		Name: "torchrun", template: torchrun, Needs: Metro, Ends: EndsAll, Binds: true,
		Why: "data-parallel training moves every gradient between all members at each step",
		Options: map[string]Option{
			"processes": {"processes of each node; as many as it has GPUs, or one", number(1, 1024)},
			"minNodes": {"minimum of nodes for training while a lost one is replaced; " +
				"all by default", number(1, MaxMembers)},
			"maxNodes": {"maximum of nodes to scale to during training; " +
				"the initial number by default", number(1, MaxMembers)},
			"maxRestarts": {"maximum restarts of a group of processes; 3 by default", number(0, 1000)},
			"sync": {"every-step (the default), or seldom for methods such as DiLoCo, which may run on a wan",
				oneOf("every-step", "seldom")},
		},
	},
	"mpi": {
		Name: "mpi", template: mpi, Needs: Metro, Ends: EndsHead, Binds: true,
		Why: "its processes wait for one another's messages all the time",
		Options: map[string]Option{
			"slots": {"processes of each node; as many as it has GPUs, or one", number(1, 1024)},
		},
	},
	"dask": {
		Name: "dask", template: dask, Needs: WAN, Ends: EndsHead, Binds: true, HeadFirst: true, Serves: true,
		Options: map[string]Option{
			"workers": {"worker processes of each node; one by default", number(1, 1024)},
			"threads": {"threads of each worker; one for each CPU of its node by default", number(1, 1024)},
		},
	},
	"none": {
		Name: "none", template: none, Needs: WAN, Ends: EndsAll, Serves: true,
		Options: map[string]Option{
			"ends": {"all (the default): when every rank's program has ended; head: when rank 0's has",
				oneOf("all", "head")},
		},
	},
}

// ErrEngine means that an engine is not known, an option is not its own, or that it cannot live on a network.
var ErrEngine = errors.New("engine")

// LookUp finds an engine by its name.
func LookUp(name string) (Engine, error) {
	e, ok := Engines[name]
	if !ok {
		return Engine{}, fmt.Errorf("%w %.40q is not known: want %s", ErrEngine, name, strings.Join(Names(), ", "))
	}
	return e, nil
}

// Names lists the engines, sorted.
func Names() []string { return slices.Sorted(maps.Keys(Engines)) }

// CheckOptions returns the first option that the engine does not have or refuses, and an error.
func (e Engine) CheckOptions(options map[string]string) (option string, err error) {
	for _, name := range slices.Sorted(maps.Keys(options)) {
		o, ok := e.Options[name]
		if !ok {
			has := "it has none"
			if len(e.Options) > 0 {
				has = "it has " + strings.Join(slices.Sorted(maps.Keys(e.Options)), ", ")
			}
			return name, fmt.Errorf("not an option of %s: %s", e.Name, has)
		}
		if err := o.check(options[name]); err != nil {
			return name, err
		}
	}
	return "", nil
}

// With is the engine with its options: they may change Needs and Ends.
func (e Engine) With(options map[string]string) Engine {
	if e.Name == "torchrun" && options["sync"] == "seldom" {
		e.Needs, e.Why = WAN, ""
	}
	if e.Name == "none" && options["ends"] == string(EndsHead) {
		e.Ends = EndsHead
	}
	return e
}

// CheckScale reports whether a cluster that runs can have another size; the error gives the reason.
func (e Engine) CheckScale(options map[string]string, begun, size uint32) error {
	t := Task{Size: begun, Options: options}
	switch least, most := t.option("minNodes", begun), max(t.option("maxNodes", begun), begun); {
	case e.Name == "mpi":
		return fmt.Errorf("%w mpi has a fixed list of hosts: submit the job again with another size", ErrEngine)
	case e.Name == "torchrun" && (size < least || size > most):
		return fmt.Errorf("%w torchrun was started for %d to %d nodes "+
			"(options minNodes and maxNodes): submit the job again with another size", ErrEngine, least, most)
	}
	return nil
}

// LivesOn reports whether the engine can live on a network of a class; the error gives the reason.
func (e Engine) LivesOn(c Class) error {
	if err := c.Check(); err != nil {
		return err
	}
	if e.Needs.Admits(c) {
		return nil
	}
	return fmt.Errorf("%w %s cannot live on a %s network, it needs %s: %s", ErrEngine, e.Name, c, e.Needs, e.Why)
}

func number(least, most uint64) func(string) error {
	return func(text string) error {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n < least || n > most {
			return fmt.Errorf("%.40q, want a whole number from %d to %d", text, least, most)
		}
		return nil
	}
}

func oneOf(words ...string) func(string) error {
	return func(text string) error {
		if !slices.Contains(words, text) {
			return fmt.Errorf("%.40q, want %s", text, strings.Join(words, " or "))
		}
		return nil
	}
}
