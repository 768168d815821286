// What the viewer uses of three.js. README.md in this folder says how three.min.js is made from it.
export {
  AmbientLight, BoxGeometry, BufferAttribute, BufferGeometry, CapsuleGeometry, Color, CylinderGeometry,
  DirectionalLight, DoubleSide, Fog, Group, HemisphereLight, LineBasicMaterial, LineSegments, Mesh,
  MeshBasicMaterial, MeshLambertMaterial, PCFShadowMap, PerspectiveCamera, PlaneGeometry, Quaternion,
  Scene, SphereGeometry, Vector3, WebGLRenderer,
} from "three";
export { OrbitControls } from "three/addons/controls/OrbitControls.js";
