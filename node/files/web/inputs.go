package web

import (
	"fmt"

	"github.com/starling-network/starling/node/service"
)

// Inputs is the section of the configuration about inputs of jobs that a peer reads from the web.
type Inputs struct {
	// URLs permits inputs by URL. If false, inputs come from their buyers only.
	URLs bool `yaml:"urls"`
	// Hosts are those of the operator's own network that URLs may name, HOST or HOST:PORT. They may have private
	// addresses. Other hosts must be on the internet.
	Hosts []string `yaml:"hosts"`
	// Fellows is how many parts of files are sent at a time to other providers of the same jobs; 0 sends none.
	Fellows int `yaml:"fellows"`
}

// maxFellows bounds Fellows: each is an open file and a buffer.
const maxFellows = 64

// Default returns the section of a peer that reads the internet alone.
func Default() Inputs { return Inputs{URLs: true, Fellows: 8} }

// Check refuses hosts that are no hosts.
func (i Inputs) Check() error {
	if i.Fellows < 0 || i.Fellows > maxFellows {
		return fmt.Errorf("%w: inputs.fellows: got %d, want 0 to %d", service.ErrConfig, i.Fellows, maxFellows)
	}
	_, err := i.Reader()
	return err
}

// Reader returns a client that reads the URLs of inputs, nil if none is read.
func (i Inputs) Reader() (*Client, error) {
	c, err := New(Config{Hosts: i.Hosts})
	if err != nil {
		return nil, fmt.Errorf("%w: inputs.hosts: %w", service.ErrConfig, err)
	}
	if !i.URLs {
		return nil, nil
	}
	return c, nil
}
