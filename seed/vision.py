"""Pictures in a prompt: what a vision-language model needs besides token ids.

In the paper: the Sokoban and EZPoints experiments with Qwen2.5-VL-3B-Instruct. There h_t holds what the agent sees; H adds the
skill's text and leaves the pictures as they are, so student and teacher look at the same ones.

A prompt is a list of ids with the pictures that its image tokens stand for. A picture of H x W pixels is cut into patches of 14
x 14; the model's vision tower turns every 2 x 2 patches into one vector, which takes the place of one image token's embedding.
Image tokens have three coordinates (time, row, column), text tokens count on from the largest one: so positions are computed
here, once for sampling and for scoring, and handed to the model, which would otherwise remember those of its last call.

Shapes: B prompts, T tokens of the longest row, D hidden width, P patches of all pictures.

How it differs from the usual way:
1. Image processor and tokenizer are loaded one by one, not as AutoProcessor: that wants torchvision, for videos alone.
2. Vectors are put in by place (the image tokens of the prompt), not wherever the image token stands: a policy may sample that
   token, too, and then it is a word like others.
"""
import torch

IMAGE = "<|image_pad|>"  # Qwen2.5-VL's image token


class Prompt(list):
    """Prompt ids, and the pictures (Pillow images) that their image tokens stand for, in order."""

    def __init__(self, ids, images: tuple = ()):
        super().__init__(ids)
        self.images = tuple(images)


def images_of(prompt: list[int]) -> tuple:
    return getattr(prompt, "images", ())  # a plain list of ids has none


class Eyes:
    """The image processor of a model, and how its output gets into the model."""

    def __init__(self, processor, image_id: int):
        self.processor, self.image_id = processor, image_id

    def tokens(self, image) -> int:
        """How many image tokens a picture takes."""
        return self.processor.get_number_of_image_patches(image.height, image.width, {}) // self.processor.merge_size ** 2

    def prompt(self, ids: list[int], images: tuple) -> Prompt:
        """The chat template writes one image token a picture: here each becomes as many as the picture takes."""
        counts, spread = iter([self.tokens(image) for image in images]), []
        for token in ids:
            spread += [token] * (next(counts) if token == self.image_id else 1)
        return Prompt(spread, images)

    def inputs(self, backbone, prompts: list[list[int]], ids_BT: torch.Tensor, mask_BT: torch.Tensor) -> dict[str, torch.Tensor]:
        """What the model is given instead of ids: embeddings [B, T, D] and positions [3, B, T] of rows that begin with these prompts,
        each where its mask begins."""
        device = ids_BT.device
        kinds_BT = torch.zeros_like(ids_BT)   # 1: an image token of the prompt
        for kinds_T, start, prompt in zip(kinds_BT, mask_BT.int().argmax(1).tolist(), prompts):
            if images_of(prompt):
                kinds_T[start:start + len(prompt)] = torch.tensor(prompt, device=device) == self.image_id
        embeddings_BTD, grids = backbone.get_input_embeddings()(ids_BT), None
        images = [image for prompt in prompts for image in images_of(prompt)]
        if images:
            seen = self.processor(images=images, return_tensors="pt").to(device)   # pixel_values [P, 1176], image_grid_thw [pictures, 3]
            grids = seen["image_grid_thw"]
            vectors = backbone.get_image_features(seen["pixel_values"], grids, return_dict=True).pooler_output
            embeddings_BTD = embeddings_BTD.masked_scatter(kinds_BT.bool()[..., None], torch.cat(vectors).to(embeddings_BTD.dtype))
        positions_3BT, _ = backbone.get_rope_index(ids_BT, kinds_BT, grids, attention_mask=mask_BT)
        return dict(inputs_embeds=embeddings_BTD, position_ids=positions_3BT)
