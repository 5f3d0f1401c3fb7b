// Families of operators, and colors for light, dark and forced colors.
(function (sv) {
  "use strict";

  const words = (text) => text.split(/\s+/);
  // The hue and saturation of each family, and what belongs to it.
  const FAMILIES = [
    { name: "Other", hue: 280, tone: 0.55, ops: [] },
    {
      name: "Linear",
      hue: 214,
      tone: 1,
      ops: words(
        "MatMul Gemm Conv ConvTranspose Einsum MatMulInteger ConvInteger QLinearMatMul QLinearConv FusedMatMul FusedConv FusedGemm MatMulNBits DeformConv DynamicQuantizeMatMul MatMulIntegerToFloat QGemm",
      ),
    },
    {
      name: "Attention and recurrence",
      hue: 256,
      tone: 1,
      ops: words(
        "Attention MultiHeadAttention GroupQueryAttention RotaryEmbedding LSTM GRU RNN SkipLayerNormalization EmbedLayerNormalization QAttention DecoderMaskedMultiHeadAttention",
      ),
    },
    {
      name: "Activation",
      hue: 28,
      tone: 1,
      ops: words(
        "Relu LeakyRelu PRelu Elu Selu Celu Gelu FastGelu BiasGelu QuickGelu Sigmoid HardSigmoid HardSwish Swish Mish Tanh Softplus Softsign Softmax LogSoftmax Hardmax Erf ThresholdedRelu Clip BiasSoftmax",
      ),
    },
    {
      name: "Normalization",
      hue: 164,
      tone: 0.9,
      ops: words(
        "BatchNormalization LayerNormalization InstanceNormalization GroupNormalization SimplifiedLayerNormalization SkipSimplifiedLayerNormalization RMSNormalization MeanVarianceNormalization LpNormalization LRN Dropout",
      ),
    },
    {
      name: "Arithmetic and logic",
      hue: 45,
      tone: 0.8,
      ops: words(
        "Add Sub Mul Div Pow Sqrt Neg Abs Exp Log Reciprocal Mod Max Min Sum Mean Floor Ceil Round Sign Sin Cos Tan Where Equal Greater Less GreaterOrEqual LessOrEqual And Or Not Xor IsNaN IsInf CumSum BitShift BitwiseAnd BitwiseOr BitwiseNot Trilu Asin Acos Atan Sinh Cosh",
      ),
    },
    {
      name: "Shape and movement",
      hue: 220,
      tone: 0.28,
      ops: words(
        "Reshape Transpose Squeeze Unsqueeze Slice Gather GatherElements GatherND Scatter ScatterElements ScatterND Concat Split Expand Shape Size Cast CastLike Identity Flatten Pad Tile Resize Upsample DepthToSpace SpaceToDepth Compress NonZero Unique OneHot ReverseSequence EyeLike TensorScatter",
      ),
    },
    {
      name: "Reduction and pooling",
      hue: 190,
      tone: 0.9,
      ops: words(
        "ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare ArgMax ArgMin TopK MaxPool AveragePool LpPool GlobalAveragePool GlobalMaxPool GlobalLpPool NonMaxSuppression MaxRoiPool RoiAlign",
      ),
    },
    { name: "Quantization", hue: 322, tone: 0.85, ops: words("QuantizeLinear DequantizeLinear DynamicQuantizeLinear") },
    {
      name: "Control flow",
      hue: 352,
      tone: 0.75,
      ops: words(
        "If Loop Scan SequenceMap Optional OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceInsert SplitToSequence ConcatFromSequence",
      ),
    },
    {
      name: "Constants and random",
      hue: 80,
      tone: 0.35,
      ops: words(
        "Constant ConstantOfShape Range RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial",
      ),
    },
    { name: "Input or output", hue: 214, tone: 0.5, ops: [] },
  ];
  const OF = new Map(FAMILIES.flatMap((family, index) => family.ops.map((op) => [op, index])));
  const PORT = FAMILIES.length - 1;
  sv.FAMILIES = FAMILIES;
  sv.PORT_FAMILY = PORT;

  /** Return the family of each node, by operator. */
  sv.families = function (model) {
    return (model.families ??= Uint8Array.from({ length: model.n }, (_, node) =>
      model.isPort(node) ? PORT : OF.get(model.strings[model.op[node]]) || 0,
    ));
  };

  function tints(isDark) {
    return FAMILIES.map(({ hue, tone }) => {
      const color = (saturation, light) => `hsl(${hue} ${Math.round(saturation * tone)}% ${light}%)`;
      return isDark
        ? { fill: color(26, 17), line: color(24, 36), strong: color(46, 62) }
        : { fill: color(62, 96.5), line: color(34, 76), strong: color(48, 52) };
    });
  }

  const FORCED = {
    bg: "Canvas",
    surface: "Canvas",
    surface2: "Canvas",
    text: "CanvasText",
    muted: "CanvasText",
    line: "CanvasText",
    accent: "Highlight",
    focus: "Highlight",
    added: "CanvasText",
    removed: "GrayText",
    changed: "CanvasText",
    edge: "CanvasText",
  };

  /** Return the colors of the page around `element`, and whether they are dark or forced by the system. */
  sv.palette = function (element) {
    const probe = document.createElement("canvas").getContext("2d");
    const hex = (color) => ((probe.fillStyle = "#000"), (probe.fillStyle = color), probe.fillStyle);
    const style = getComputedStyle(element);
    const read = (name) => hex(style.getPropertyValue(name).trim());
    const colors = { isForced: matchMedia("(forced-colors: active)").matches, sans: style.fontFamily };
    if (colors.isForced) {
      for (const [name, color] of Object.entries(FORCED)) colors[name] = hex(color);
    } else {
      const names = {
        bg: "--bg",
        surface: "--surface",
        surface2: "--surface-2",
        text: "--text",
        muted: "--muted",
        line: "--line",
        accent: "--accent",
        focus: "--focus",
        added: "--added",
        removed: "--removed",
        changed: "--changed",
      };
      for (const [name, property] of Object.entries(names)) colors[name] = read(property);
    }
    colors.isDark = luminance(colors.bg) < 0.4;
    if (!colors.isForced) colors.edge = colors.isDark ? "#6b737d" : "#a2a7ad";
    const forced = { fill: colors.bg, line: colors.text, strong: colors.text };
    colors.families = colors.isForced
      ? FAMILIES.map(() => forced)
      : tints(colors.isDark).map((tint) => ({ fill: hex(tint.fill), line: hex(tint.line), strong: hex(tint.strong) }));
    return colors;
  };

  function luminance(color) {
    const [r, g, b] = sv.rgb(color);
    return (0.299 * r + 0.587 * g + 0.114 * b) / 255;
  }

  /** Return [red, green, blue] of #rrggbb. */
  sv.rgb = function (color) {
    const value = parseInt(color.slice(1, 7), 16);
    return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
  };

  /** Return #rrggbb as a pixel of image data. */
  sv.pixel = function (color) {
    const [r, g, b] = sv.rgb(color);
    return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
  };
})(surgeryViewer);
