import bpy

scene = bpy.context.scene
scene.render.engine, scene.render.filepath = "CYCLES", "/tmp/cube.png"
scene.render.resolution_x, scene.render.resolution_y = 64, 36
scene.cycles.samples, scene.cycles.use_denoising = 4, False
bpy.ops.render.render(write_still=True)
image = bpy.data.images.load("/tmp/cube.png")
lit = max(image.pixels[:4 * 64 * 36]) > 0.1
print("rendered", "x".join(map(str, image.size)), "lit" if lit else "dark", flush=True)
