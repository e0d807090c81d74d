package gpu

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// machine is the devices of all vendors in a machine.
type machine struct {
	nvidia, amd Source
}

func (m *machine) Name() string { return m.nvidia.Name() + "+" + m.amd.Name() }

func (m *machine) Inventory(ctx context.Context) (Inventory, error) {
	all := Inventory{Devices: []Device{}}
	var names []string
	for _, s := range []Source{m.nvidia, m.amd} {
		inv, err := s.Inventory(ctx)
		if err != nil {
			return Inventory{}, err
		}
		if len(inv.Devices) > 0 || len(inv.Problems) > 0 {
			names = append(names, inv.Source)
		}
		if all.Driver == "" {
			all.Driver = inv.Driver
		}
		all.Devices = append(all.Devices, inv.Devices...)
		all.Problems = append(all.Problems, inv.Problems...)
	}
	if len(names) == 0 {
		names = []string{None{}.Name()}
	}
	all.Source = strings.Join(names, "+")
	return all, nil
}

func (m *machine) Health(ctx context.Context, uuids []string) (map[string]Health, error) {
	byVendor := map[Source][]string{}
	for _, uuid := range uuids {
		s := m.nvidia
		if strings.HasPrefix(uuid, amdPrefix) {
			s = m.amd
		}
		byVendor[s] = append(byVendor[s], uuid)
	}
	all := map[string]Health{}
	for s, some := range byVendor {
		health, err := s.Health(ctx, some)
		if err != nil {
			return nil, err
		}
		for uuid, h := range health {
			all[uuid] = h
		}
	}
	return all, nil
}

func (m *machine) Close() error { return errors.Join(m.nvidia.Close(), m.amd.Close()) }

// simulated is the devices of one of NVIDIA's mocks: there is no kernel to compare them with.
type simulated struct {
	nvidia
}

func (s *simulated) Name() string { return "nvml-mock " + s.cfg.Mock }

func (s *simulated) Inventory(ctx context.Context) (Inventory, error) {
	inv, err := s.ask(ctx)
	if ctx.Err() != nil {
		return Inventory{}, ctx.Err()
	}
	if err != nil {
		inv = Inventory{Devices: []Device{}, Problems: []string{fmt.Sprintf("simulated devices: %v", err)}}
	}
	inv.Source = s.Name()
	judge(inv.Devices)
	inv.markSimulated()
	return inv, nil
}
