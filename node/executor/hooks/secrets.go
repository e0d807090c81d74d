package hooks

import (
	"context"

	"github.com/starling-network/starling/market/sign"
	"github.com/starling-network/starling/node/executor"
	"github.com/starling-network/starling/node/nodepb"
	"github.com/starling-network/starling/node/runtime"
	"github.com/starling-network/starling/node/workload"
)

// Secrets opens the sealed part of a workload for a start. It stays in memory; the journal has the box.
type Secrets struct{ Opener Opener }

var (
	_ executor.Admission = Secrets{}
	_ executor.Prestart  = Secrets{}
)

// Admit refuses a workload with a box that cannot be opened here.
func (s Secrets) Admit(e *executor.Execution, _ sign.Key) error {
	_, err := s.open(e)
	return err
}

// Prestart adds the secrets and the credentials of the image's registry.
func (s Secrets) Prestart(_ context.Context, e *executor.Execution, l *executor.Launch) error {
	secrets, err := s.open(e)
	if err != nil {
		return err
	}
	l.Spec.Secrets, l.Spec.SecretEnv = secrets.Files, secrets.Env
	if secrets.RegistryUsername != "" || secrets.RegistryPassword != "" {
		l.Auth = &runtime.RegistryAuth{Username: secrets.RegistryUsername, Password: secrets.RegistryPassword}
	}
	return nil
}

func (s Secrets) open(e *executor.Execution) (*nodepb.Secrets, error) {
	if len(e.Work.Sealed) == 0 {
		return &nodepb.Secrets{}, nil
	}
	plain, err := s.Opener.Open(e.Work.Sealed, e.Lease)
	if err != nil {
		return nil, workload.Bad("secrets: not sealed to this provider for this lease")
	}
	return workload.Secrets(plain)
}
