package userdocker

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/starling-network/starling/p2p/stream"
)

// imagePatience bounds the search for an image in the engine.
const imagePatience = 5 * time.Second

// variables are those of the environment that docker gets.
var variables = []string{"PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG",
	"DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"}

// Image returns the size of an image in the user's container engine, bytes. The program `docker` finds the engine: by
// DOCKER_HOST, by a context, or as podman's program of that name does. ok is false if the engine does not have the
// image, does not answer or is not there.
func Image(ctx context.Context, env Env, image string) (size int64, ok bool) {
	program, ok := findProgram(env, "docker")
	if !ok || strings.HasPrefix(image, "-") {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, imagePatience)
	defer cancel()
	c := exec.CommandContext(ctx, program, "image", "inspect", "--format", "{{.Size}}", image)
	c.WaitDelay = time.Second // its children may hold its output open
	c.Env = []string{}
	for _, name := range variables {
		if value := env(name); value != "" {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	out, err := c.Output()
	if err != nil {
		return 0, false
	}
	size, err = strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	return size, err == nil && size >= 0
}

// Hint is the advice about an image that no registry gave: how providers can get it. refused means that the registry
// refused the request. The image may then be a private one there, or one of this computer alone: the advice has both.
func Hint(ctx context.Context, env Env, image string, refused bool) string {
	size, here := Image(ctx, env, image)
	push := fmt.Sprintf("docker tag %s REGISTRY/NAME:TAG && docker push REGISTRY/NAME:TAG", image)
	login := fmt.Sprintf("if the registry has %s, give your docker login with --registry-auth docker "+
		"(registryAuth: docker in a job file)", image)
	switch {
	case refused && here:
		return fmt.Sprintf("%s; docker on this computer has an image of this name too, %s: to run that, push it to a "+
			"registry: %s", login, stream.Size(size), push)
	case refused:
		return fmt.Sprintf("%s; if only a computer of yours has it, push it to a registry: %s", login, push)
	case here:
		return fmt.Sprintf("%s is only on this computer, %s, and providers get images from registries: push it: %s",
			image, stream.Size(size), push)
	}
	return fmt.Sprintf("providers get images from registries: if %s is only on a computer of yours, push it: %s", image,
		push)
}
