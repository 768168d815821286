"use strict";
// The 3D part of the page: one canvas, one view for each policy.

const GRID = 0.5; // metres
const FLOOR = 24; // metres

/** The numbers of a packed array, scaled back if they were stored as whole numbers. */
function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (c) => c.charCodeAt(0)).buffer;
  const kinds = { f4: Float32Array, i2: Int16Array, u2: Uint16Array, u4: Uint32Array };
  const raw = new kinds[packed.type](bytes);
  return packed.scale ? Float32Array.from(raw, (x) => x * packed.scale) : raw;
}

/** Shapes of MuJoCo as geometries of three.js. Equal ones are made once. */
class ShapeShop {
  constructor(meshes) {
    this.meshes = meshes;
    this.made = new Map();
    this.materials = new Map();
  }

  geometry(kind, size, mesh) {
    const key = `${kind} ${size} ${mesh}`;
    if (!this.made.has(key)) this.made.set(key, this.build(kind, size, mesh));
    return this.made.get(key);
  }

  build(kind, [a, b, c], mesh) {
    if (kind === "sphere") return new THREE.SphereGeometry(a, 28, 18);
    if (kind === "box") return new THREE.BoxGeometry(2 * a, 2 * b, 2 * c);
    if (kind === "ellipsoid") return new THREE.SphereGeometry(1, 28, 18).scale(a, b, c);
    if (kind === "plane") return new THREE.PlaneGeometry(2 * (a || FLOOR), 2 * (b || FLOOR));
    if (kind === "capsule") return new THREE.CapsuleGeometry(a, 2 * b, 6, 16).rotateX(Math.PI / 2);
    if (kind === "cylinder") return new THREE.CylinderGeometry(a, a, 2 * b, 36).rotateX(Math.PI / 2);
    const geometry = new THREE.BufferGeometry();
    const { vertices, faces } = this.meshes[mesh];
    geometry.setAttribute("position", new THREE.BufferAttribute(unpack(vertices), 3));
    geometry.setIndex(new THREE.BufferAttribute(unpack(faces), 1));
    geometry.computeVertexNormals();
    return geometry;
  }

  material(rgba, flat = false) {
    const key = `${rgba} ${flat}`;
    if (!this.materials.has(key)) {
      const clear = rgba[3] < 1;
      this.materials.set(key, new THREE.MeshLambertMaterial({
        color: new THREE.Color(...rgba.slice(0, 3)).convertSRGBToLinear(), flatShading: flat,
        transparent: clear, opacity: rgba[3], depthWrite: !clear,
      }));
    }
    return this.materials.get(key);
  }

  mesh(kind, size, rgba, mesh = -1) {
    const made = new THREE.Mesh(this.geometry(kind, size, mesh), this.material(rgba, kind === "mesh"));
    made.castShadow = rgba[3] === 1 && kind !== "plane";
    return made;
  }
}

/** One policy's world in one episode. */
class World {
  constructor(shop, model, side, palette) {
    this.side = side;
    this.root = new THREE.Group();
    this.bodies = this.makeBodies(shop, model, side);
    this.marks = side.marks.map((mark) => this.makeMark(shop, mark));
    this.moving = unpack(side.poses.moving);
    this.track = unpack(side.track);
    this.makePath(palette);
    this.target = new THREE.Vector3();
    this.spare = [new THREE.Quaternion(), new THREE.Quaternion()];
  }

  makeBodies(shop, model, side) {
    const groups = new Map();
    for (const geom of model.geoms) {
      if (geom.kind === "plane" && geom.body === 0) continue; // the floor is drawn apart
      if (!groups.has(geom.body)) groups.set(geom.body, new THREE.Group());
      const mesh = shop.mesh(geom.kind, geom.size, geom.rgba, geom.mesh);
      mesh.position.set(...geom.pos);
      const [w, x, y, z] = geom.quat;
      mesh.quaternion.set(x, y, z, w);
      groups.get(geom.body).add(mesh);
    }
    const still = unpack(side.poses.still);
    side.poses.still_bodies.forEach((body, i) => {
      if (groups.has(body)) this.place(groups.get(body), still, 7 * i);
    });
    groups.forEach((group) => this.root.add(group));
    return side.poses.moving_bodies.map((body) => groups.get(body));
  }

  makeMark(shop, mark) {
    const mesh = shop.mesh(mark.shape, [...mark.size, 0], mark.rgba);
    const path = unpack(mark.pos);
    mesh.position.set(path[0], path[1], path[2]);
    this.root.add(mesh);
    return { mesh, path };
  }

  place(group, numbers, at) {
    group.position.set(numbers[at], numbers[at + 1], numbers[at + 2]);
    group.quaternion.set(numbers[at + 4], numbers[at + 5], numbers[at + 6], numbers[at + 3]).normalize();
  }

  /** The way of the robot as a band on the floor, red where a constraint was broken. */
  makePath(palette) {
    const n = this.side.steps + 1, half = 0.012;
    const points = new Float32Array(6 * n), colours = new Float32Array(6 * n), index = [];
    for (let i = 0; i < n; i++) {
      const a = 3 * Math.max(i - 1, 0), b = 3 * Math.min(i + 1, n - 1), at = 3 * i;
      const dx = this.track[b] - this.track[a], dy = this.track[b + 1] - this.track[a + 1];
      const length = Math.hypot(dx, dy) || 1;
      const nx = (-dy / length) * half, ny = (dx / length) * half;
      const colour = palette[this.side.broken[i] ? "bad" : "path"];
      points.set([this.track[at] + nx, this.track[at + 1] + ny, 0.04], 6 * i);
      points.set([this.track[at] - nx, this.track[at + 1] - ny, 0.04], 6 * i + 3);
      colours.set([colour.r, colour.g, colour.b, colour.r, colour.g, colour.b], 6 * i);
      if (i) index.push(2 * i - 2, 2 * i - 1, 2 * i, 2 * i - 1, 2 * i + 1, 2 * i);
    }
    for (const opacity of [0.25, 0.9]) {
      const geometry = new THREE.BufferGeometry();
      geometry.setAttribute("position", new THREE.BufferAttribute(points, 3));
      geometry.setAttribute("color", new THREE.BufferAttribute(colours, 3));
      geometry.setIndex(index);
      const material = new THREE.MeshBasicMaterial({
        vertexColors: true, transparent: true, opacity, side: THREE.DoubleSide, depthWrite: false });
      const band = new THREE.Mesh(geometry, material);
      band.renderOrder = 1;
      this.root.add(band);
      this.past = geometry;
    }
  }

  /** Put everything where it was at a time, in steps; between two steps it is interpolated. */
  show(time) {
    const t = Math.min(time, this.side.steps), at = Math.min(Math.floor(t), this.side.steps - 1);
    const share = t - at, row = 7 * this.bodies.length, [from, to] = this.spare, p = this.moving;
    const mix = (numbers, i, stride) => numbers[i] + share * (numbers[i + stride] - numbers[i]);
    this.bodies.forEach((group, k) => {
      if (!group) return;
      const i = at * row + 7 * k, j = i + row;
      group.position.set(mix(p, i, row), mix(p, i + 1, row), mix(p, i + 2, row));
      from.set(p[i + 4], p[i + 5], p[i + 6], p[i + 3]).normalize();
      to.set(p[j + 4], p[j + 5], p[j + 6], p[j + 3]).normalize();
      group.quaternion.copy(from.slerp(to, share));
    });
    for (const { mesh, path } of this.marks) {
      if (path.length === 3) continue;
      const i = 3 * at;
      mesh.position.set(mix(path, i, 3), mix(path, i + 1, 3), mix(path, i + 2, 3));
    }
    const i = 3 * at;
    this.target.set(mix(this.track, i, 3), mix(this.track, i + 1, 3), mix(this.track, i + 2, 3));
    this.past.setDrawRange(0, 6 * Math.round(t));
  }
}

/** The canvas: draws the worlds side by side, only when something has changed. */
class Stage {
  constructor(canvas, model, changed) {
    this.canvas = canvas;
    this.model = model;
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias: true, powerPreference: "low-power" });
    this.renderer.setPixelRatio(Math.min(devicePixelRatio, 2));
    this.renderer.shadowMap.enabled = !drawnByProcessor(this.renderer.getContext());
    this.renderer.shadowMap.type = THREE.PCFShadowMap;
    this.renderer.setScissorTest(true);
    this.shop = new ShapeShop(model.meshes);
    this.scene = new THREE.Scene();
    this.camera = new THREE.PerspectiveCamera(42, 1, 0.05, 60);
    this.camera.up.set(0, 0, 1);
    this.controls = new THREE.OrbitControls(this.camera, canvas);
    this.controls.maxPolarAngle = 0.495 * Math.PI;
    this.controls.minDistance = 0.4;
    this.controls.maxDistance = 20;
    this.controls.addEventListener("change", changed);
    this.worlds = [];
    this.light();
    this.setTheme();
  }

  light() {
    this.scene.add(new THREE.HemisphereLight(0xffffff, 0xb8b4a8, 1.9));
    this.sun = new THREE.DirectionalLight(0xffffff, 1.7);
    this.sun.castShadow = true;
    this.sun.shadow.mapSize.set(1024, 1024);
    this.sun.shadow.radius = 3;
    this.sun.shadow.bias = -0.002;
    Object.assign(this.sun.shadow.camera, { left: -3, right: 3, top: 3, bottom: -3, near: 1, far: 14 });
    this.scene.add(this.sun, this.sun.target);
    this.floor = new THREE.Mesh(new THREE.PlaneGeometry(FLOOR, FLOOR), new THREE.MeshLambertMaterial());
    this.floor.receiveShadow = true;
    const lines = [], half = FLOOR / 2; // in short pieces: a line from before to behind the camera may vanish
    for (let x = -half; x <= half; x += GRID) {
      for (let y = -half; y < half; y++) lines.push(x, y, 0, x, y + 1, 0, y, x, 0, y + 1, x, 0);
    }
    const grid = new THREE.BufferGeometry();
    grid.setAttribute("position", new THREE.BufferAttribute(new Float32Array(lines), 3));
    this.grid = new THREE.LineSegments(grid, new THREE.LineBasicMaterial({ transparent: true }));
    this.grid.position.z = 0.004;
    this.grid.renderOrder = -1; // under what is transparent
    this.scene.add(this.floor, this.grid);
  }

  /** Take the colours of the page, which follow the system's light or dark mode. */
  setTheme() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => new THREE.Color(style.getPropertyValue(name).trim());
    this.scene.background = colour("--sky");
    this.scene.fog = new THREE.Fog(colour("--sky"), 8, 14);
    this.floor.material.color = colour("--floor");
    this.grid.material.color = colour("--floor-line");
    this.palette = { path: colour("--path"), bad: colour("--bad") };
  }

  setEpisode(sides) {
    for (const world of this.worlds) this.scene.remove(world.root);
    this.worlds = sides.map((side) => new World(this.shop, this.model, side, this.palette));
    for (const world of this.worlds) this.scene.add(world.root);
  }

  /** Where the camera looks from: "follow", "arena" or "top". */
  setCamera(name) {
    this.follow = name === "follow";
    const [, , w, h] = viewports(this.worlds.length || 1, this.canvas.clientWidth, this.canvas.clientHeight)[0];
    const back = Math.max(1, (1.15 * h) / w || 1), away = back * (1.5 + 1.7 * this.model.size);
    const { size } = this.model;
    const places = { follow: [0, -away, 0.75 * away], arena: [0, -4.2 * back, 4.4 * back], top: [0, -0.01, 6.4 * back] };
    this.controls.target.set(0, 0, this.follow ? 0.2 * size : 0);
    this.camera.position.set(...places[name]).add(this.controls.target);
    this.controls.update();
  }

  /** Draw the worlds at a time, in steps. */
  draw(time) {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const ratio = this.renderer.getPixelRatio();
    if (this.canvas.width !== Math.floor(width * ratio) || this.canvas.height !== Math.floor(height * ratio)) {
      this.renderer.setSize(width, height, false);
    }
    const boxes = viewports(this.worlds.length, width, height);
    this.worlds.forEach((world, k) => {
      world.show(time);
      const [x, y, w, h] = boxes[k], shift = this.follow ? world.target.clone().setZ(0) : new THREE.Vector3();
      this.worlds.forEach((other) => (other.root.visible = other === world));
      this.camera.position.add(shift);
      this.sun.position.copy(shift).add(new THREE.Vector3(-1.2, -2, 6));
      this.sun.target.position.copy(shift);
      this.camera.aspect = w / h;
      this.camera.updateProjectionMatrix();
      this.camera.updateMatrixWorld();
      this.renderer.setViewport(x, height - y - h, w, h);
      this.renderer.setScissor(x, height - y - h, w, h);
      this.renderer.render(this.scene, this.camera);
      this.camera.position.sub(shift);
    });
  }
}

/** Whether the browser draws without a GPU, where shadows would take half of the time. */
function drawnByProcessor(gl) {
  const info = gl.getExtension("WEBGL_debug_renderer_info");
  const name = String(gl.getParameter(info ? info.UNMASKED_RENDERER_WEBGL : gl.RENDERER));
  return /swiftshader|llvmpipe|software/i.test(name);
}

/** The boxes [x, y, width, height] of views, beside each other or, on a narrow screen, stacked. */
function viewports(count, width, height) {
  if (count === 1) return [[0, 0, width, height]];
  if (width < 560) return [[0, 0, width, height / 2], [0, height / 2, width, height / 2]];
  return [[0, 0, width / 2, height], [width / 2, 0, width / 2, height]];
}
