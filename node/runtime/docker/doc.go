// Package docker runs container images on a Docker engine of this machine (20.10 and newer), each in a container that
// its own guard (package guard) looks after. It runs on Linux.
//
//	peer ──── API ────▶ engine ── creates, starts, pauses, removes ──▶ container ┐
//	  │                                                                          │ guard, process 1: a static binary
//	  │                                                                          │ of ours, mounted over the image
//	  └── a socket in Spec.Dir/control, mounted read-only in the container ──────┤
//	      order, secrets, open log files ▶  ◀ started, answers, its end          │  └─ program: the image's, with
//	                                                                             │     exactly its environment, and
//	                                                                             ┘     what is attached
//
// The engine is needed to begin, to pause and to clean up. Everything else goes between peer and guard: logs, limits on
// time and disk, signals, usage, attached programs, dialled ports, the report. So an engine that dies or is restarted
// (with live-restore) leaves an execution as it is, a peer that dies leaves it a grace, and no secret is in anything
// that the engine keeps.
//
// # Images as they are
//
// Where the operator's daemon.json has package ociruntime as an OCI runtime, the peer is root and has volumes, and the
// engine maps no users by itself, New starts a guard under it once. If that succeeds, containers of specs with a Layer
// have a user namespace with 65,536 users of this machine, the range of Spec.User, and what follows differs for them:
//
//	user        the image's, with its groups and HOME; root is the first user of the range. The guard is root, and
//	            starts the program and attached ones with the user's credentials. Writable mounts and secrets are
//	            that user's
//	privileges  the engine's usual capabilities, in the namespace: set-user-ID programs and packages' scripts work
//	files       the root can be written: an overlay of the image and Spec.Layer, which is in the volume of the
//	            writable mounts and shares its room. /run, /tmp and the image's volumes are parts of it, with the
//	            image's content. So are hosts, hostname and resolv.conf of /etc; those of members of clusters are the
//	            peer's, which changes them. Secrets are in memory
//	disk        a write to the layer that finds no room in the volume is refused, bytes and files. Nothing in a layer
//	            is synced to the disk
//	network     a member of a cluster is in its sidecar's network, which belongs to no namespace of the container
//
// Before the program starts, the peer checks that the guard's users are those of the range. Where New finds that there
// can be no layers, its log names the remedy, and containers are as the next section says. So are those of specs
// without a Layer and those with GPUs: NVIDIA's hooks are known to fail in user namespaces, and could not be tried.
//
// # The sandbox
//
//	user        the peer's; where it is root one of its own for each Spec.User, which owns the writable mounts:
//	            2,000,000,000 and the number, or with userns-remap the container's user of that number. Inotify,
//	            pipes, keyrings and numbers of processes are bounded by the kernel for each user. A peer that is not
//	            root, and one of a rootless engine, has all programs as one user, its own, and says so in its log. The
//	            group is the peer's
//	kernel      this machine's, or that of Config.Runtime: see below
//	privileges  no capability, no-new-privileges, the engine's seccomp filter (an engine without one is refused)
//	files       read-only image; /run, /tmp and the image's volumes in memory; Spec.Mounts, whose directories may
//	            neither hold nor lie in the engine's or the system's own
//	memory      Limits.MemoryMiB, 24 MiB for the guard and 32 MiB for probes, and 64 MiB for the kernel of
//	            Config.Runtime; no swap. What is in /run and /tmp counts. The program is killed before the guard
//	processes   Limits.Pids and 32 for the guard, which makes its threads before the program starts
//	CPU         a quota; the guard's own work counts. Where less is there than was sold, all have the same weight, but
//	            a cluster's head that its fellows wait for has eight times as much, up to its quota
//	disk        writable mounts that are in a volume (package volume): the kernel refuses what has no room there,
//	            bytes and files. It takes a peer that is root, loop devices and mke2fs, and an engine that sees what
//	            the peer mounts; each guard looks whether its container does. Elsewhere the peer measures writable
//	            mounts, removed files that are open too, every 50 ms or a tenth of its time, and ends the program when
//	            there are too many bytes or files (ReasonDisk). One file cannot grow past the limit in between;
//	            several can by what the disk takes in that time, and in the grace without a peer. While the disk has
//	            less than 256 MiB left the one that grows fastest is ended. Not seen, by a peer that is not root, are
//	            removed files of a program that hides its descriptors (by PR_SET_DUMPABLE): each is bounded by the
//	            limit, and gone with the program
//	disk I/O    a fifth of the usual weight, where the disk's scheduler knows weights (bfq, iocost), and 1,000 writes
//	            to its volume in a second, where the kernel has throttling; what the kernel has not the engine leaves
//	            out. A volume has no journal that others write to, so that waiting for it makes nobody else wait
//	time        the guard's timer; for a paused container the peer's
//	network     a loopback, and with Spec.Overlay one device whose other end the peer holds: see the sidecar below. No
//	            container is on a bridge or a network of the engine's, and no rule or route of this machine is made
//	            for any
//	GPUs        a device request to NVIDIA's hook by UUID; without one NVIDIA_VISIBLE_DEVICES is "void", whatever the
//	            image says; probes run on the same devices from outside the container, while its program stands still
//	image       by digest, for this machine, bounded; its HEALTHCHECK, USER, ONBUILD and SHELL mean nothing. The peer
//	            reads it from its registry (package fetch) and the engine is given it as an archive: no engine is led
//	            to any address
//	disk of     images pulled for orders are in a repository of ours (starling.invalid/order) and go when the disk is
//	the engine  fuller than Config.ImagesPercent, those that were used longest ago first, not those of containers or
//	            of the last quarter of an hour; nobody else's go. A pull that would leave less than Config.FreeMiB is
//	            refused, before its layers are read, and again when it is known what they unpack to, before the engine
//	            unpacks them
//
// # Other OCI runtimes
//
// Containers of programs run under Config.Runtime, if the operator names one; sidecars, which hold no program, under
// the engine's own. New starts a guard under it once and refuses a runtime that the engine does not know or under which
// the guard does not come to its socket. Peer and guard communicate only by means that such a runtime has to have: a
// socket of this machine that a container connects to, and open files that come with messages from the peer to the
// guard, never back. So a guard that connects anew is known by a token and not by its process, which under gVisor is
// not one of this machine; connections and terminals are pairs of sockets of which the guard gets one.
//
//	runc     every engine's own. The tests of this package run under it
//	runsc    gVisor, with --host-uds=open among the runtimeArgs in daemon.json. Debian's of 2022 (platform ptrace)
//	         passes the conformance tests on Linux 6.18 with --network=host, which is the network namespace of the
//	         container: that version takes every network namespace of kernels that new for the machine's, and starts
//	         nothing with a network stack of its own. One of 2025 (systrap) with its own stack runs programs, gauges
//	         and overlays; there a change of an overlay's MTU reaches the device, and not that stack. Its control
//	         group, volumes, measured disks, pauses and gauges work. What differs: a program may kill its guard with
//	         SIGKILL, and one that uses up Limits.Pids ends its sandbox; either is then lost. The CPU limit of what is
//	         to end cannot be lifted, so thousands of processes end slowly. GPUs need --nvproxy and were not tried;
//	         NVIDIA's hook was not tried either
//	kata     its containers are virtual machines, which do not come to a socket of this machine: it cannot be used
//	crun     Debian's (1.8.1) was tried on a machine with both versions of control groups, where it starts nothing
//
// # The sidecar of an execution with an overlay
//
// A member of a cluster and a container that has a way out alone have the same one.
//
//	peer ◀── the device's descriptor, as often as asked ── guard ("net") in the sidecar: --network none, NET_ADMIN
//	  │      over a socket in Spec.Dir/net, mounted            │ and /dev/net/tun
//	  │      read-only in the sidecar alone                    │ makes ovl0: address, MTU, the way to everywhere
//	  │                                                        │ keeps its own copy of the descriptor, so that a
//	  │                                                        │ peer's restart loses no network
//	  │                                                        ▼
//	  └── packets, read from and written to the device ── lo, ovl0 ◀── the container joins (container:…):
//	                                                                   no capability, no device, the sidecar's host
//	                                                                   name, its own /etc/hosts and so on, read-only
//
// No tenant's program is ever in the sidecar. Its image is made here, of an archive of nothing: a tenant's would bring
// layers to stack, links and volumes to look out for and variables that hooks read, and another one would have to come
// from somewhere. It runs as root in its container, whose file system has no other file, because engines give
// capabilities to nobody else.
//
// # Files of an execution (Spec.Dir, mode 0700)
//
//	owner.lock   held by the peer's process         stdout.log, stderr.log   written by the guard, bounded
//	state.json   guard's token, start, limit        report.json              the guard's last word, or the peer's if
//	                                                                         it left none
//	killed       exists once Stop meant to kill     control/                 mounted read-only at runtime.ControlDir:
//	                                                                         socket, stop file
//	files/       what an overlay shows in /etc      net/                     the same for the sidecar: socket
//
// The container's name is a hash of Spec.Dir (and "-net" for the sidecar), its labels are the peer and Spec.Dir, and
// that is all that ties the two together.
//
// # Rooms
//
//	engine      connection to the engine: requirements, errors, names and labels of containers
//	images      images of the engine, their pulls (fetch) and those on the shelf (shelf)
//	sandbox     configuration of a program's container: command, user, mounts, limits
//	disk        volumes, and measured mounts
//	rundir      files of an execution, above
//	guard       the first process of a container; link: the peer's connections to guards
//	ociruntime  user namespaces and layers, in a process that stands in for runc; passwd: users of images
//	sidecar     containers of overlays
//	attached    programs beside that of an execution, and connections to its ports
//	gauges      probes of an execution's devices
//
// This package has the executions: keeper watches them and removes their containers, starter begins them, recoverer
// finds those of an earlier process again.
//
// # Failures
//
//	the program ends           guard kills the rest, writes the report, ends; the peer sees the connection's end and
//	                           reads it
//	the guard dies             so does the container; the peer asks the engine: killed by memory (oom), else lost. A
//	                           sandbox with a kernel of its own that was killed while this machine's kernel ended
//	                           some process for want of memory counts as oom, too: the engine may miss it
//	the sidecar dies           the peer ends the program (lost): its network is gone
//	the peer dies              guard's connection ends; it tries to connect anew for the grace, then ends the program
//	                           (lost)
//	… while it starts one      the guard ends for want of an order; the next New removes the container
//	… while one is paused      the guard is frozen; Recover thaws it, or New removes it when the grace is over
//	the peer returns           Recover takes the lock and listens; the guard, known by its token, connects
//	… after the end            Recover reads the report
//	the engine dies            live-restore: nothing, but Start, Pause and Destroy fail with ErrEngine until it is
//	                           back. Otherwise containers end then, or at the latest when it is back: lost
//	the engine is stopped      it asks programs to end first; whatever they exit with, they are lost
//	the machine dies           Recover finds a dead container or none: lost
//
// A sidecar ends when the peer says that the execution has, or when no peer has been there for the grace and a little
// more. A container that has ended is removed at once; where the engine is away, by Destroy or the next New.
package docker
