// Package docker runs container images on a Docker engine of this machine (20.10 and newer), each in a container under
// its own guard (package guard). It runs on Linux.
//
//	peer ──── API ────▶ engine ── creates, starts, pauses, removes ──▶ container ┐
//	  │                                                                          │ guard, process 1: a static binary
//	  │                                                                          │ mounted over the image
//	  └── a socket in Spec.Dir/control, mounted read-only in the container ──────┤
//	      order, secrets, open log files ▶  ◀ started, answers, its end          │  └─ program: the image's, with
//	                                                                             │     only its environment, and
//	                                                                             ┘     attached programs
//
// The engine is needed to start, pause and clean up. Peer and guard handle the rest: logs, limits on time and disk,
// signals, usage, attached programs, dialled ports, the report. An execution thus survives a restart of the engine
// (with live-restore), and of the peer for the grace. The engine stores no secret.
//
// # Images as they are
//
// If the operator's daemon.json has package ociruntime as an OCI runtime, the peer is root with volumes, and the engine
// maps no users, New starts a guard under it once. If that succeeds, containers of specs with a Layer have a user
// namespace with 65,536 users of this machine, the range of Spec.User. They differ as follows:
//
//	user        the image's, with its groups, HOME and HOSTNAME; root is the first user of the range. The guard is
//	            root, and starts the program and attached ones with the user's credentials. Writable mounts, secrets,
//	            /dev/stdout and /dev/stderr are that user's, and so are terminals
//	privileges  the engine's usual capabilities, in the namespace: set-user-ID programs and packages' scripts work.
//	            The kernel refuses mknod
//	files       the root can be written: an overlay of the image and Spec.Layer, which is in the volume of the
//	            writable mounts and shares its room. /run, /tmp and the image's volumes are parts of it, with the
//	            image's content. So are hosts, hostname and resolv.conf of /etc; those of members of clusters are the
//	            peer's, which changes them. Secrets are in memory
//	disk        a write to the layer that finds no room in the volume is refused, bytes and files. Nothing in a layer
//	            is synced to the disk
//	network     a member of a cluster is in its sidecar's network, which belongs to no namespace of the container
//
// Before the program starts, the peer checks that the guard's users are those of the range. If layers are not possible,
// New logs the remedy, and containers are as in the next section. So are containers of specs without a Layer and
// containers with GPUs: NVIDIA's hooks are known to fail in user namespaces, and were not tested.
//
// # The sandbox
//
//	user        the peer's; if it is root, a separate one for each Spec.User, which owns the writable mounts:
//	            2,000,000,000 and the number, or with userns-remap the container's user of that number. Inotify,
//	            pipes, keyrings and numbers of processes are limited by the kernel per user. A peer that is not
//	            root, or uses a rootless engine, runs all programs as its own user and logs a warning. The
//	            group is the peer's
//	kernel      this machine's, or that of Config.Runtime: see below
//	privileges  no capability, no-new-privileges, the engine's seccomp filter (an engine without one is refused)
//	files       read-only image; /run, /tmp and the image's volumes in memory; Spec.Mounts, whose directories may
//	            neither contain nor be in those of the engine or the system
//	memory      Limits.MemoryMiB, 24 MiB for the guard and 32 MiB for probes, and 64 MiB for the kernel of
//	            Config.Runtime; no swap. Files in /run, /tmp and /dev/shm count; the latter has Limits.ShmMiB. The
//	            program is killed before the guard
//	processes   Limits.Pids and 32 for the guard, which makes its threads before the program starts
//	CPU         a quota; the guard's own work counts. If the CPU is overcommitted, all have the same weight, but
//	            a cluster's head that other members wait for has eight times that weight, up to its quota
//	disk        writable mounts in a volume (package volume): the kernel refuses writes that have no room there,
//	            bytes and files. It needs a peer that is root, loop devices, mke2fs, and an engine that sees
//	            the peer's mounts; each guard checks that its container does. Without, the peer measures writable
//	            mounts, removed files that are open too, every 50 ms or a tenth of its time, and ends the program when
//	            there are too many bytes or files (ReasonDisk). One file cannot grow past the limit in between;
//	            several can by what the disk takes in that time, and in the grace without a peer. While the disk has
//	            less than 256 MiB left the one that grows fastest is ended. Not seen, by a peer that is not root, are
//	            removed files of a program that hides its descriptors (by PR_SET_DUMPABLE): each is bounded by the
//	            limit, and gone with the program
//	            A writable mount with its own limit (Mount.RoomMiB) is refused if it is not another volume
//	disk I/O    a fifth of the usual weight, if the disk's scheduler has weights (bfq, iocost), and 1,000 writes
//	            to its volume per second, if the kernel has throttling; the engine omits limits that the kernel
//	            lacks. A volume has no shared journal, so waiting for it delays no other container
//	time        the guard's timer; for a paused container the peer's
//	network     a loopback, and with Spec.Overlay one device whose other end the peer holds: see the sidecar below. No
//	            container is on a bridge or a network of the engine's, and no rule or route of this machine is made
//	            for any. Its own name is in /etc/hosts
//	GPUs        a device request to NVIDIA's hook by UUID; without one NVIDIA_VISIBLE_DEVICES is "void", not the
//	            image's; probes run on the same devices from outside the container, while its program is stopped
//	image       by digest, for this machine, bounded; HEALTHCHECK, USER, ONBUILD and SHELL are ignored: the program
//	            has the user above and none of the image's groups. HOME is /tmp, and USER and LOGNAME are job,
//	            unless the image's ENV or the spec sets them. WORKDIR holds, if others may enter it. The peer
//	            downloads it (package fetch) and gives it to the engine as an archive, so the engine connects to no
//	            address of the image
//	disk of     images brought for orders are in the repository starling.invalid/open, or, if they needed credentials
//	the engine  or were pushed, in starling.invalid/order. If the disk is fuller than Config.ImagesPercent, the least
//	            recently used are removed, but not images of containers or of the last 15 minutes. Other images are
//	            not removed. A pull that would leave less than Config.FreeMiB is refused before its layers are read,
//	            and again when their unpacked size is known, before the engine unpacks them
//
// # Other OCI runtimes
//
// Containers of programs run under Config.Runtime, if the operator names one; sidecars, which hold no program, under
// the engine's own. New starts a guard under it once and refuses a runtime that the engine does not know or under which
// the guard cannot connect to its socket. Such a runtime needs two means of communication: a socket of this machine
// that a container connects to, and open files in messages from the peer to the guard, never back. A guard that
// reconnects is thus identified by a token, not by its process, which under gVisor is not a process of this machine.
// Connections and terminals are pairs of sockets of which the guard gets one.
//
//	runc     the default of every engine. The tests of this package run under it
//	runsc    gVisor, with --host-uds=open among the runtimeArgs in daemon.json. Debian's of 2022 (platform ptrace)
//	         passes the conformance tests on Linux 6.18 with --network=host, which is the network namespace of the
//	         container: on kernels that new, that version takes every network namespace for the machine's and starts
//	         no container with its own network stack. A version of 2025 (systrap) with its own stack runs programs,
//	         gauges and overlays; a change of an overlay's MTU reaches the device, but not that stack. Its control
//	         group, volumes, measured disks, pauses and gauges work. Differences: a program may kill its guard with
//	         SIGKILL, and a program that uses up Limits.Pids ends its sandbox; either is then lost. The CPU limit of
//	         an ending container cannot be lifted, so thousands of processes end slowly. GPUs need --nvproxy; they
//	         and NVIDIA's hook were not tested
//	kata     its containers are virtual machines, which cannot connect to a socket of this machine: not supported
//	crun     Debian's (1.8.1) was tried on a machine with both versions of control groups; it starts no container
//
// # The sidecar of an execution with an overlay
//
// Members of clusters and single containers with network access use the same kind of sidecar.
//
//	peer ◀── the device's descriptor, on each request ─── guard ("net") in the sidecar: --network none, NET_ADMIN
//	  │      over a socket in Spec.Dir/net, mounted            │ and /dev/net/tun
//	  │      read-only in the sidecar alone                    │ makes ovl0: address, MTU, default route
//	  │                                                        │ keeps its own copy of the descriptor, so that a
//	  │                                                        │ peer's restart loses no network
//	  │                                                        ▼
//	  └── packets, read from and written to the device ── lo, ovl0 ◀── the container joins (container:…):
//	                                                                   no capability, no device, the sidecar's host
//	                                                                   name, its own /etc/hosts and so on, read-only
//
// No tenant's program runs in the sidecar. Its image is made here from an empty archive: a tenant's image would bring
// layers, links, volumes and variables that hooks read, and any other image would have to be downloaded. The guard runs
// as root in the sidecar, whose file system has no other file, because engines give capabilities only to root.
//
// # Files of an execution (Spec.Dir, mode 0700)
//
//	owner.lock   held by the peer's process         stdout.log, stderr.log   written by the guard, bounded
//	state.json   guard's token, start, limit        report.json              the guard's report, or the peer's if
//	                                                                         it wrote none
//	killed       exists once Stop kills the program control/                 mounted read-only at runtime.ControlDir:
//	                                                                         socket, stop file
//	files/       an overlay's files in /etc         net/                     the same for the sidecar: socket
//
// The container's name is a hash of Spec.Dir (and "-net" for the sidecar), its labels are the peer and Spec.Dir, and
// these alone link the two.
//
// # Rooms
//
//	engine      connection to the engine: requirements, errors, names and labels of containers
//	images      images of the engine, their pulls (fetch) and those on the shelf (shelf)
//	sandbox     configuration of a program's container: command, user, mounts, limits
//	disk        volumes, and measured mounts
//	rundir      files of an execution, above
//	guard       the first process of a container; link: the peer's connections to guards
//	ociruntime  user namespaces and layers, in a process that wraps runc; passwd: users of images
//	sidecar     containers of overlays
//	attached    programs beside that of an execution, and connections to its ports
//	gauges      probes of an execution's devices
//
// This package has the executions: keeper watches them and removes their containers, starter starts them, recoverer
// takes over executions of an earlier process.
//
// # Failures
//
//	the program ends           guard kills the rest, writes the report, ends; the peer sees the connection's end and
//	                           reads it
//	the guard dies             so does the container; the peer queries the engine: killed by memory (oom), else lost.
//	                           A sandbox with its own kernel that was killed while this machine's kernel killed
//	                           some process for lack of memory counts as oom, too: the engine may miss it
//	the sidecar dies           the peer ends the program (lost): its network is gone
//	the peer dies              guard's connection ends; it tries to reconnect for the grace, then ends the program
//	                           (lost)
//	… while it starts one      the guard ends without an order; the next New removes the container
//	… while one is paused      the guard is frozen; Recover thaws it, or New removes it after the grace
//	the peer returns           Recover takes the lock and listens; the guard, known by its token, connects
//	… after the end            Recover reads the report
//	the engine dies            live-restore: nothing, but Start, Pause and Destroy fail with ErrEngine until it is
//	                           back. Otherwise containers end then, or at the latest when it is back: lost
//	the engine is stopped      it sends programs a stop signal first; with any exit code, they are lost
//	the machine dies           Recover finds a dead container or none: lost
//
// A sidecar ends when the peer reports the execution's end, or when no peer was connected for slightly more than the
// grace. A container that has ended is removed at once, or by Destroy or the next New if the engine is not available.
package docker
