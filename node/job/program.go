package job

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/starling-network/starling/market"
	"github.com/starling-network/starling/market/images"
	"github.com/starling-network/starling/node/job/names"
	"github.com/starling-network/starling/node/runtime"
)

// EngineSocket is the file by which a program would command the provider's container engine.
const EngineSocket = "docker.sock"

// Never are the fields that containers have elsewhere and not here, each with the reason of its refusal. Without it
// they would be reported as misspelt.
var Never = map[string]string{
	"privileged": "privileged containers are not possible on Starling: the provider's machine is not yours, and " +
		"its other guests are strangers",
	"hostMounts": neverMounts, "hostPath": neverMounts, "capAdd": neverCapabilities, "capabilities": neverCapabilities,
	"docker.sock": "the provider's container engine is not given to any program on Starling: its socket gives " +
		"control of the machine",
	"devices": "devices of the provider's machine cannot be named on Starling: use resources.gpus, and the " +
		"engine gives the GPUs of your lease",
	"securityContext": neverConfinement, "securityOpt": neverConfinement,
	"hostNetwork": "the provider's own network is not possible on Starling: network is none or internet",
	"hostPID":     "the provider's own processes are not visible on Starling: a container sees its own",
	"hostIPC":     "the provider's own memory is not shared on Starling: a container has its own",
	"ports": "ports are not published on the provider's machine: reach them with starling job port-forward " +
		"JOB 0:PORT while the job runs",
	"tty":  "only starling run has a terminal for its job: run -it, or starling exec -it JOB -- sh in a running one",
	"user": "the user of a container cannot be chosen: it is the image's USER, or one of the provider's",
}

const (
	neverMounts = "mounts of the provider's own files are not possible on Starling: write inputs and outputs, " +
		"which are copied"
	neverCapabilities = "more kernel capabilities are not possible on Starling: a container has at most an " +
		"engine's usual ones"
	neverConfinement = "a container's confinement cannot be changed on Starling: no privileges, no capabilities, " +
		"its own user and file system"
)

// tagged is an image reference with a tag and no digest, or a file path with a colon in its name.
var tagged = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(
		`^[a-z0-9][a-zA-Z0-9._-]*(:[0-9]{1,5}/)?[a-zA-Z0-9._/-]*:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
})

// withPort matches a registry with a port, such as localhost:5000.
var withPort = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z0-9][a-zA-Z0-9.-]*:[0-9]{1,5}$`)
})

// IsImage reports whether a program is a container image and not a file: a reference with a digest or a tag, or one of
// a well-known registry or of a registry with a port.
func IsImage(program string) bool {
	if strings.HasPrefix(program, "docker://") || strings.Contains(program, "@sha256:") {
		return true
	}
	if strings.HasPrefix(program, CIDScheme) || strings.HasSuffix(program, ".wasm") ||
		strings.Contains(program, "://") {
		return false
	}
	host, _, slash := strings.Cut(program, "/")
	known := slices.Contains([]string{"docker.io", "ghcr.io", "quay.io", "nvcr.io", "registry.k8s.io"}, host)
	return slash && (known || withPort().MatchString(host)) || tagged().MatchString(program)
}

// imageName is the last word of an image's name: "ghcr.io/acme/train:v1@sha256:…" → "train".
func imageName(image string) string {
	name, _, _ := strings.Cut(image, "@")
	name = path.Base(name)
	name, _, _ = strings.Cut(name, ":")
	if name == "." {
		return ""
	}
	return name
}

func checkProgram(j Job, ps *problems) {
	switch j.Runtime {
	case RuntimeDocker:
		if j.Module != "" && j.Cluster == nil { // a cluster has no module
			ps.add("spec.module", "spec.image is given, too: write one of them")
		}
		checkImage(ps, j.Image)
	case RuntimeWasm:
		checkModule(ps, "spec.module", j.Module)
		for _, only := range []struct {
			field string
			given bool
		}{
			{"spec.image", j.Image != ""}, {"spec.entrypoint", len(j.Entrypoint) > 0},
			{"spec.workDir", j.WorkDir != ""},
			{"spec.network", j.Network != runtime.NetworkNone}, {"spec.registryAuth", j.Registry != nil},
			{"spec.health", j.Health != nil}, {"spec.shmSize", j.ShmMiB > 0},
		} {
			if only.given {
				ps.add(only.field, "only a container has one: give an image instead of a module")
			}
		}
	case RuntimeVolume:
		checkVolume(j, ps)
		return
	default:
		ps.add("runtime", "%.40q, want %q, %q or %q", j.Runtime, RuntimeWasm, RuntimeDocker, RuntimeVolume)
	}
	checkArgs(ps, "spec.entrypoint", j.Entrypoint)
	if len(j.Entrypoint) > 0 && j.Entrypoint[0] == "" {
		ps.add("spec.entrypoint[0]", "names no program")
	}
	if d := j.WorkDir; d != "" && (!path.IsAbs(d) || path.Clean(d) != d || len(d) > MaxPath || !names.IsText(d)) {
		ps.add("spec.workDir", "%.80q is not a clean absolute path", d)
	}
	if j.Network != runtime.NetworkNone && j.Network != runtime.NetworkInternet {
		ps.add("spec.network", "%.40q, want none or internet", string(j.Network))
	}
}

func checkImage(ps *problems, image string) {
	err := runtime.CheckImageName(image)
	switch {
	case image == "":
		ps.add("spec.image", "missing: a container image")
	case strings.HasSuffix(image, ".wasm") || strings.HasPrefix(image, CIDScheme):
		ps.add("spec.image", "%.120q is not a container image: a WASI program is given by module", image)
	case err != nil:
		ps.add("spec.image", "%v", err)
	case images.IsPushed(image) && runtime.CheckImage(image) != nil:
		ps.add("spec.image", "%.120q has no digest: name a pushed image as starling image push prints it", image)
	}
}

// isGPU reports whether the units of a class are GPUs: "gpu", and "gpu/" with a model.
func isGPU(c market.Class) bool { return c == "gpu" || strings.HasPrefix(string(c), "gpu/") }

// Kept returns the job with a program that waits for its user. The job's own command is that of terminals in its
// container.
func Kept(j Job) (Job, error) {
	switch {
	case j.Runtime != RuntimeDocker:
		return j, fmt.Errorf("%w: spec.module: only a container has a terminal: give an image", ErrInvalid)
	case j.Count != 1 || j.Cluster != nil || j.Rounds != nil:
		return j, fmt.Errorf("%w: spec.count: a terminal needs a job of one rank", ErrInvalid)
	}
	j.Entrypoint = append(runtime.Keeper(), j.Entrypoint...)
	return j, nil
}
