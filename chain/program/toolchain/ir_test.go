package toolchain

import (
	"strings"
	"testing"
)

func TestCallable(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]string{
		// What BPF can call stays as it is.
		`define i64 @entrypoint(ptr noundef %input) unnamed_addr #3 {`:                   "",
		`define internal range(i64 0, 5) i64 @f(i64 %a, i64 %b, ptr %c, i8 %d, i1 %e) {`: "",
		`define internal void @f(ptr captures(address, read_provenance) %a) #0 {`:        "",
		`declare { i64, i64 } @f()`:                                                "",
		`define internal void @f() {`:                                              "",
		`  %x = call { i64, i64 } @f(ptr %y)`:                                      "",
		`define internal noundef i32 @"a name, with (odd) {letters}"(ptr %a) #0 {`: "",
		// Results through pointers lose their mark.
		`define internal void @f(ptr noalias sret([80 x i8]) align 8 %_0, ptr %a) #0 {`: `define internal void @f(ptr noalias align 8 %_0, ptr %a) #0 {`,
		`  call void @f(ptr sret([16 x i8]) align 8 %_0)`:                               `  call void @f(ptr align 8 %_0)`,
		// Two registers, or six parameters.
		`define internal { i64, i64 } @f(ptr %a) unnamed_addr #0 {`:                                   `define internal { i64, i64 } @f(ptr %a) unnamed_addr alwaysinline #0 {`,
		`define internal fastcc [2 x i64] @f(ptr %a) #0 {`:                                            `define internal fastcc [2 x i64] @f(ptr %a) alwaysinline #0 {`,
		`define internal i128 @f(i128 %a) local_unnamed_addr {`:                                       `define internal i128 @f(i128 %a) local_unnamed_addr alwaysinline {`,
		`define internal i32 @"f"(i64 %a, i64 %b, ptr dereferenceable(8) %c, i8 %d, i1 %e, i64 %f) {`: `define internal i32 @"f"(i64 %a, i64 %b, ptr dereferenceable(8) %c, i8 %d, i1 %e, i64 %f) alwaysinline {`,
	} {
		if want == "" {
			want = before
		}
		if got, err := callable("\n" + before + "\n}"); err != nil || got != "\n"+want+"\n}" {
			t.Errorf("%s\ngot  %s\nwant %s\n%v", before, got, want, err)
		}
	}
	for _, bad := range []string{"define nonsense", "define void @f(ptr %a"} {
		if _, err := callable(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestCallMemory(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]string{
		`  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %a, ptr align 1 %b, i64 96, i1 false)`: "",
		`declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1 immarg) #1`:                     "",
		`  %x = call i64 @f(i64 3)`: "",
		`  call void @llvm.memcpy.p0.p0.i64(ptr align 1 %a, ptr align 1 %b, i64 97, i1 false), !x !5`:         `  call void @sol_memcpy_(ptr align 1 %a, ptr align 1 %b, i64 97), !x !5`,
		`  tail call void @llvm.memmove.p0.p0.i64(ptr %a, ptr %b, i64 noundef range(i64 0, -9) %n, i1 false)`: `  call void @sol_memmove_(ptr %a, ptr %b, i64 %n)`,
		`  call void @llvm.memset.p0.i64(ptr align 8 %a, i8 7, i64 %n, i1 false) #9`:                          `  call void @sol_memset_(ptr align 8 %a, i8 7, i64 %n) #9`,
	} {
		if want == "" {
			want = before
		}
		got, err := callMemory(before + "\n")
		if body, _, _ := strings.Cut(got, "\n"); err != nil || body != want {
			t.Errorf("%s\ngot  %s\nwant %s\n%v", before, body, want, err)
		}
		if called, declared := strings.Contains(got, "call void @sol_"), strings.Contains(got, "declare void @sol_"); called != declared {
			t.Errorf("%s: declared %v, called %v", before, declared, called)
		}
	}
	for _, bad := range []string{
		`  call void @llvm.memcpy.p0.p0.i64(ptr %a, ptr %b, i64 %n, i1 true)`,
		`  call void @llvm.memset.p0.i32(ptr %a, i8 0, i32 %n, i1 false)`,
		`  call void @llvm.memcpy.element.unordered.atomic.p0.p0.i64(ptr %a, ptr %b, i64 %n, i32 1)`,
	} {
		if _, err := callMemory(bad); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}

func TestExchange(t *testing.T) {
	t.Parallel()
	const before = `define i64 @f(i64 %a, i64 %b) {
  %c = add nuw i64 %a, %b
  %d = sub i64 %a, %c
  %e = xor i64 %c, %d, !dbg !1
  %"a b" = mul i64 %e, 3
  %f = or i64 %"a b", %c
  ret i64 %f
}
define i64 @g(i64 %a, i64 %b) {
  %c = and i64 %a, %b
  %d = add i64 %b, %a
  ret i64 %b
}`
	// Of f's first sum b is not needed any more, of its last neither; in g nothing is last where it stands second, but a.
	const want = `define i64 @f(i64 %a, i64 %b) {
  %c = add nuw i64 %b, %a
  %d = sub i64 %a, %c
  %e = xor i64 %d, %c, !dbg !1
  %"a b" = mul i64 %e, 3
  %f = or i64 %"a b", %c
  ret i64 %f
}
define i64 @g(i64 %a, i64 %b) {
  %c = and i64 %a, %b
  %d = add i64 %a, %b
  ret i64 %b
}`
	if got := exchange(before); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
