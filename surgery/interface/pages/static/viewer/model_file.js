// A region as an ONNX model: its nodes and small constants; other weights become inputs, as a page holds none.
(function (sv) {
  "use strict";

  /** The element types, by their number in TensorProto.DataType. */
  sv.ELEMENT_TYPES = (
    "undefined float uint8 int8 uint16 int16 int32 int64 string bool float16 double uint32 uint64 complex64 " +
    "complex128 bfloat16 float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz uint4 int4 float4e2m1 float8e8m0 " +
    "uint2 int2 float6e2m3 float6e3m2"
  ).split(" ");

  const VARINT = 0;
  const LENGTH = 2;
  const encoder = new TextEncoder();

  /** A protobuf message that is being written. */
  class Message {
    constructor() {
      this.parts = [];
      this.size = 0;
    }

    raw(bytes) {
      this.parts.push(bytes);
      this.size += bytes.length;
      return this;
    }

    varint(number) {
      const bytes = [];
      for (; number > 127; number = Math.floor(number / 128)) bytes.push((number % 128) | 128);
      return this.raw(Uint8Array.from([...bytes, number]));
    }

    number(field, value) {
      return this.varint((field << 3) | VARINT).varint(value);
    }

    text(field, value) {
      return this.message(field, new Message().raw(encoder.encode(value)));
    }

    message(field, inner) {
      this.varint((field << 3) | LENGTH).varint(inner.size);
      for (const part of inner.parts) this.raw(part);
      return this;
    }
  }

  function unpacked(text) {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  }

  /** Return a declaration of a value with a type such as "float[batch,768]"; null if the type is not that of a tensor. */
  function declared(name, type) {
    const [, element, , dims] = /^(\w+)(\[(.*)\])?$/.exec(type) || [];
    const number = sv.ELEMENT_TYPES.indexOf(element);
    if (number < 1) return null;
    const tensor = new Message().number(1, number);
    if (dims !== "...") {
      const shape = new Message();
      for (const dim of dims ? dims.split(/,(?![^(]*\))/) : []) {
        const one = new Message();
        if (/^\d+$/.test(dim)) one.number(1, Number(dim));
        else if (dim !== "?") one.text(2, dim);
        shape.message(1, one);
      }
      tensor.message(2, shape);
    }
    return new Message().text(1, name).message(2, new Message().message(1, tensor));
  }

  class RegionError extends Error {}

  /** The nodes of a region in the chosen state, as they are written to a model. */
  class Region {
    constructor(view, nodes) {
      this.model = view.model;
      this.state = view.state;
      this.strings = view.model.strings;
      // A node that a page holds only in part, such as a large constant, stays outside: its results are inputs.
      this.nodes = nodes.filter((node) => this.details(node).outputs && !this.isConstant(node));
      this.makers = new Map();
      for (const node of this.nodes) for (const [name] of this.details(node).outputs) this.makers.set(name, node);
    }

    details(node) {
      return this.model.details[node] || {};
    }

    /** Return whether a node is a constant that is too large for a page. */
    isConstant(node) {
      return this.strings[this.model.op[node]] === "Constant" && this.details(node).partial;
    }

    /** Throw if the page does not have all of a node as it is in the chosen state. */
    check(node) {
      const { model, strings } = this;
      const name = sv.cut(strings[model.name[node]] || strings[model.op[node]], 60);
      if (this.details(node).partial) {
        throw new RegionError(`'${name}' has a subgraph, a parameter of a function or a large attribute.`);
      }
      for (let at = model.alteredStart[node]; at < model.alteredStart[node + 1]; at++) {
        if (model.alteredState[model.alteredRows[at]] > this.state) {
          throw new RegionError(`'${name}' is changed by a later step. Choose the last step.`);
        }
      }
    }

    /** Return the nodes, producers before consumers. */
    ordered() {
      const found = [];
      const seen = new Map();
      for (const first of this.nodes) {
        const stack = [first];
        while (stack.length) {
          const node = stack[stack.length - 1];
          if (seen.get(node) === undefined) {
            seen.set(node, false);
            for (const [name] of this.details(node).inputs || []) {
              const maker = this.makers.get(name);
              if (maker !== undefined && seen.get(maker) === undefined) stack.push(maker);
            }
          } else {
            stack.pop();
            if (!seen.get(node)) found.push(node);
            seen.set(node, true);
          }
        }
      }
      return found;
    }

    node(node) {
      const { model, strings } = this;
      const { inputs = [], outputs, packed } = this.details(node);
      const message = new Message();
      const last = inputs.reduce((at, [name], index) => (name ? index + 1 : at), 0);
      for (const [name] of inputs.slice(0, last)) message.text(1, strings[name]);
      for (const [name] of outputs) message.text(2, strings[name]);
      message.text(3, strings[model.name[node]]).text(4, strings[model.op[node]]);
      if (strings[model.domain[node]]) message.text(7, strings[model.domain[node]]);
      return packed ? message.raw(unpacked(strings[packed])) : message;
    }

    /** Return the results that others read, or that nobody reads. */
    outputs() {
      const isIn = new Set(this.nodes);
      const readers = new Map();
      const { model } = this;
      for (let edge = 0; edge < model.m; edge++) {
        const died = model.edgeDied[edge];
        if (model.edgeBorn[edge] > this.state || (died >= 0 && died <= this.state) || !isIn.has(model.from[edge])) continue;
        const name = model.value[edge];
        readers.set(name, readers.get(name) || !isIn.has(model.to[edge]));
      }
      return this.nodes.flatMap((node) =>
        this.details(node).outputs.filter(([name]) => name && readers.get(name) !== false),
      );
    }

    graph(title) {
      const { strings } = this;
      const graph = new Message();
      const order = this.ordered();
      for (const node of order) this.check(node);
      for (const node of order) graph.message(1, this.node(node));
      graph.text(2, title);
      const seen = new Set();
      for (const node of order) {
        for (const [name, type, constant] of this.details(node).inputs || []) {
          if (!name || seen.has(name) || this.makers.has(name)) continue;
          seen.add(name);
          if (constant && constant.packed !== undefined) {
            graph.message(5, new Message().raw(unpacked(constant.packed)).text(8, strings[name]));
            continue;
          }
          const port = declared(strings[name], strings[type]);
          if (!port) throw new RegionError(`The type of '${sv.cut(strings[name], 60)}' is not that of a tensor, or unknown.`);
          graph.message(11, port);
        }
      }
      for (const [name, type] of this.outputs()) {
        graph.message(12, declared(strings[name], strings[type]) || new Message().text(1, strings[name]));
      }
      return graph;
    }
  }

  /** Return the current region as the bytes of an ONNX file. Throws `RegionError` if the page does not have all of it. */
  sv.modelFile = function (view) {
    const { ir_version: irVersion, opsets } = view.model.states[view.state];
    const region = new Region(view, sv.nodesOfRegion(view));
    if (!irVersion || !region.nodes.length) throw new RegionError("There are no nodes to save.");
    const message = new Message().number(1, irVersion).text(2, "surgery");
    message.message(7, region.graph(sv.region(view).title));
    for (const [domain, version] of Object.entries(opsets)) {
      const imported = domain ? new Message().text(1, domain) : new Message();
      message.message(8, imported.number(2, version));
    }
    const bytes = new Uint8Array(message.size);
    let at = 0;
    for (const part of message.parts) {
      bytes.set(part, at);
      at += part.length;
    }
    return bytes;
  };

  /** Save the current region as an ONNX file, or say why the page cannot. */
  sv.saveModel = function (view) {
    try {
      sv.save(view, [sv.modelFile(view)], "application/octet-stream", ".onnx");
    } catch (problem) {
      if (!(problem instanceof RegionError)) throw problem;
      view.announce(problem.message, true);
    }
  };
})(surgeryViewer);
