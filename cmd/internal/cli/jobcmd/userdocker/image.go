package userdocker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// imagePatience bounds the search for an image in the engine.
const imagePatience = 5 * time.Second

// variables are those of the environment that docker gets.
var variables = []string{"PATH", "HOME", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG",
	"DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY"}

// Found is an image of the user's container engine.
type Found struct {
	ID   string
	Size int64 // bytes
}

// Image finds an image in the user's container engine. The program `docker` finds the engine: by DOCKER_HOST, by a
// context, or as podman's program of that name does. ok is false if the engine does not have the image, does not answer
// or is not there.
func Image(ctx context.Context, env Env, image string) (found Found, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, imagePatience)
	defer cancel()
	c, ok := command(ctx, env, "image", "inspect", "--format", "{{.Id}} {{.Size}}", image)
	if !ok || strings.HasPrefix(image, "-") {
		return found, false
	}
	out, err := c.Output()
	if err != nil {
		return found, false
	}
	id, size, ok := strings.Cut(strings.TrimSpace(string(out)), " ")
	found.ID = id
	found.Size, err = strconv.ParseInt(size, 10, 64)
	return found, ok && err == nil && found.Size >= 0 && imageID().MatchString(id)
}

// imageID matches the ID of an image.
var imageID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^(sha256:)?[0-9a-f]{64}$`) })

// command returns a command of the user's docker. ok is false if docker is not on the PATH.
func command(ctx context.Context, env Env, args ...string) (c *exec.Cmd, ok bool) {
	program, ok := findProgram(env, "docker")
	if !ok {
		return nil, false
	}
	c = exec.CommandContext(ctx, program, args...)
	c.WaitDelay = time.Second // its children may hold its output open
	c.Env = []string{}
	for _, name := range variables {
		if value := env(name); value != "" {
			c.Env = append(c.Env, name+"="+value)
		}
	}
	return c, true
}

// Save reads an image of the user's container engine, by its ID, as an archive. The caller closes it: Close returns the
// error of docker.
func Save(ctx context.Context, env Env, id string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	c, ok := command(ctx, env, "image", "save", id)
	if !ok {
		cancel()
		return nil, errors.New("docker is not on the PATH")
	}
	s := &saving{cmd: c, said: &bounded{most: maxSaid}, cancel: cancel}
	c.Stderr = s.said
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("running docker: %w", err)
	}
	s.ReadCloser = out
	return s, nil
}

// maxSaid bounds the text of docker's error, bytes.
const maxSaid = 4 << 10

// saving is the output of a running docker.
type saving struct {
	io.ReadCloser
	cmd    *exec.Cmd
	said   *bounded
	cancel context.CancelFunc
	ended  bool // the output was read to its end
}

func (s *saving) Read(b []byte) (int, error) {
	n, err := s.ReadCloser.Read(b)
	s.ended = s.ended || err == io.EOF
	return n, err
}

// Close ends docker. It returns docker's error if the output was read to its end.
func (s *saving) Close() error {
	if !s.ended {
		s.cancel()
	}
	err := s.cmd.Wait()
	s.cancel()
	if err == nil || !s.ended {
		return nil
	}
	return fmt.Errorf("%w: %s", err, strings.TrimSpace(s.said.buf.String()))
}

// Hint is the advice about an image that no registry gave. refused means that the registry refused the request. The
// image may then be a private one there, or one of a computer alone: the advice has both.
func Hint(image string, refused bool) string {
	push := fmt.Sprintf("on the computer whose docker has %s, starling image push stores it on your peer", image)
	if refused {
		return fmt.Sprintf("if the registry has %s, give your docker login with --registry-auth docker "+
			"(registryAuth: docker in a job file); %s", image, push)
	}
	return "check the image's name; " + push
}
