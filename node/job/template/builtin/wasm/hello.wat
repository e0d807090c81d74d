;; Writes "hello, " and the program's arguments, one a line. Build: wat2wasm hello.wat
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (memory (export "memory") 2)
  (data (i32.const 64) "hello, ")
  (data (i32.const 80) "\n")
  ;; write writes n bytes at p to standard output
  (func $write (param $p i32) (param $n i32)
    (i32.store (i32.const 0) (local.get $p))
    (i32.store (i32.const 4) (local.get $n))
    (drop (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8))))
  (func $length (param $p i32) (result i32) (local $n i32)
    (loop $more
      (if (i32.load8_u (i32.add (local.get $p) (local.get $n)))
        (then (local.set $n (i32.add (local.get $n) (i32.const 1))) (br $more))))
    (local.get $n))
  (func (export "_start") (local $i i32) (local $p i32)
    ;; at most 1,024 pointers from 4,096 and 64 KiB of text from 16,384
    (drop (call $args_sizes_get (i32.const 16) (i32.const 20)))
    (if (i32.gt_u (i32.load (i32.const 16)) (i32.const 1024)) (then (unreachable)))
    (if (i32.gt_u (i32.load (i32.const 20)) (i32.const 65536)) (then (unreachable)))
    (drop (call $args_get (i32.const 4096) (i32.const 16384)))
    (local.set $i (i32.const 1))
    (block $done
      (loop $next
        (br_if $done (i32.ge_u (local.get $i) (i32.load (i32.const 16))))
        (local.set $p (i32.load (i32.add (i32.const 4096) (i32.shl (local.get $i) (i32.const 2)))))
        (call $write (i32.const 64) (i32.const 7))
        (call $write (local.get $p) (call $length (local.get $p)))
        (call $write (i32.const 80) (i32.const 1))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $next)))))
